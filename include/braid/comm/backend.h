// SPDX-License-Identifier: BSD-3-Clause
// What carries a collective: the interface of every backend and wrapper. Programs use comm::Group;
// this header is for those who write a backend.
//
//   class Mine final : public comm::Backend {
//     // one method for every kind of call
//     std::unique_ptr<comm::Work> start(const comm::Call& call) override;
//   };
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::comm {

enum class Kind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  send,
  recv,
  barrier
};
inline constexpr int kinds = 8;
enum class Op : uint8_t { sum, mean, max, min };
std::string_view to_text(Kind kind);
std::string_view to_text(Op op);

// One call on one rank, checked by the group: tensors are contiguous, and have one dtype and
// device.
struct Call {
  Kind kind = Kind::barrier;
  Op op = Op::sum;  // mean: the group has divided the input already, the backend adds
  at::Tensor input =
      {};  // what this rank gives; all_reduce and broadcast work in place: input is output
  at::Tensor output = {};  // what it gets
  int peer = -1;           // root of a broadcast, other end of a message: a rank of the group
  int tag = 0;             // messages between two ranks match in order within a tag
  // Rows (of dim 0) that belong to each rank; empty: equal shares. all_gather fills output_counts,
  // reduce_scatter input_counts, all_to_all both.
  std::vector<int64_t> input_counts = {}, output_counts = {};
};

// "all_reduce sum float32 [3, 4]": what the ranks of a group must agree on, and what reports print.
std::string to_text(const Call& call);
// Bytes of the whole tensor that a call is about: the larger of input and output.
int64_t bytes_of(const Call& call);

// A call under way.
class Work {
 public:
  virtual ~Work() = default;
  virtual void wait() = 0;        // until the output can be used; throws CommError
  virtual bool done() const = 0;  // known to have finished; a message may be known only by wait()
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Calls of all ranks of a group come in the same order; the tensors live until wait() returns.
  virtual std::unique_ptr<Work> start(const Call& call) = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "gloo"
  // A backend for some ranks (of this group, ascending order not needed); only those call it, and
  // all with the same list and name. It lives at least as long as this one.
  virtual std::shared_ptr<Backend> split(const std::vector<int>& ranks,
                                         const std::string& name) = 0;
  // Gives up: what is under way here and on the peers ends with an error instead of a hang.
  virtual void abort() {}
};

// Work that was over when it began.
std::unique_ptr<Work> finished();

// A communicator over TCP sockets (Gloo), for CPU tensors; GPU tensors go through host memory.
class Store;
struct GlooOptions {
  std::string address = "127.0.0.1";  // of this host as its peers see it
  double timeout_seconds = 300;       // a call that takes longer ends with an error
};
std::shared_ptr<Backend> gloo(const Store& store, int rank, int size, GlooOptions options = {});

// One rank of a world that is not there. Real tensors get what they would get if every rank had
// given the same values; where that says nothing (recv, uneven all_to_all), zeros. Dry tensors are
// left as they are.
std::shared_ptr<Backend> dry(int rank, int size);

}  // namespace braid::comm
