// SPDX-License-Identifier: BSD-3-Clause
// What travels between the server and one worker of asynchronous SGD.
#pragma once
#include <cstdint>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/param.h"

namespace braid::parallel {

enum class AsyncWord : int64_t { weights = 1, gradients = 2, good_bye = 3 };

// One message in host memory: a word and a number, then a place for every parameter.
struct AsyncMessage {
  explicit AsyncMessage(const std::vector<Param>& params);
  int64_t* head() const { return bytes.mutable_data_ptr<int64_t>(); }
  void set(AsyncWord word, int64_t number) const;
  AsyncWord word() const { return static_cast<AsyncWord>(head()[0]); }
  int64_t number() const { return head()[1]; }

  at::Tensor bytes;  // int64
  std::vector<at::Tensor> parts;
};

// The two ends of a group of two.
class AsyncWire {
 public:
  AsyncWire() = default;
  // Made by both, at the same time for the first pair, and so on.
  AsyncWire(const comm::Group& group, int server, int worker);
  // Both ends learn whether they have the same parameters; else both throw InternalError.
  void meet(const std::vector<Param>& params) const;
  void send(const AsyncMessage& message) const;
  void receive(const AsyncMessage& message) const;
  void abort() const { pair_.abort(); }

 private:
  comm::Group pair_;
  int server_ = 0, worker_ = 0;  // ranks of the group
};

}  // namespace braid::parallel
