// SPDX-License-Identifier: BSD-3-Clause
// Messages of one run of a pipeline. Receives are posted before they are needed; sends own their
// tensors and are let go when something that the other rank did later has come.
#pragma once
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/blocks.h"
#include "parallel/schedule_parts.h"

namespace braid::parallel {

struct PipelineMailOptions {
  std::function<std::vector<CarrySpec>(int stage, int micro)> carried;
  c10::Device device = c10::kCPU;
  // Messages of a stage that may be on their way before a send waits; 0: no limit. For runs in
  // which nothing comes back that could tell.
  size_t window = 0;
};

class PipelineMail {
 public:
  PipelineMail(const Schedule& schedule, comm::Group axis, PipelineMailOptions options)
      : schedule_(schedule),
        axis_(std::move(axis)),
        options_(std::move(options)),
        places_(schedule),
        heard_(static_cast<size_t>(schedule.ranks)) {}

  void post(const Action& recv);  // takes the memory
  Carry take(const Action& recv);
  void send(const Action& send, const Carry& tensors);  // undefined ones stay here
  void finish();                                        // all sends have arrived
  void give_up();  // after an abort of the group: nothing is waited for in the destructor

 private:
  struct Sent {
    int to = 0;
    Action send;
    size_t used_at = 0;  // in the list of the other rank
    std::vector<comm::Pending> messages;
  };
  struct Expected {
    Carry tensors;
    std::vector<comm::Pending> messages;
  };
  using Key = std::pair<int, int>;  // tag, micro-batch

  void hear(const Message& message);
  void keep_window(const Action& send);
  static void wait_for(std::vector<comm::Pending>& messages);

  const Schedule& schedule_;
  comm::Group axis_;
  PipelineMailOptions options_;
  Places places_;
  std::vector<size_t> heard_;  // of each rank: place of the last send of it that has come, and one
  std::vector<Sent> sent_;
  std::map<Key, Expected> expected_;
};

}  // namespace braid::parallel
