// SPDX-License-Identifier: BSD-3-Clause
// What the ranks tell each other once a step, in one small message that travels while the first
// forward pass runs: how much their share of the batch weighs, whether somebody wants to stop, and
// how long their last step took.
//
//   rounds.begin({.weight = 32, .stop = signals.asked() ? 1.0 : 0.0});
//   forward();
//   loss = loss * (32 / rounds.weight());   // of all ranks
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"

namespace braid::train {

struct RankReport {
  double weight = 0;     // of its share of this step's batch
  double stop = 0;       // 0: go on; the largest one of all ranks counts
  double seconds = 0;    // of the last step
  double data_wait = 0;  // parts of it
  double comm_wait = 0;
  double profile = 0;  // steps that somebody asked this rank to profile
};

class Rounds {
 public:
  // `copies`: ranks that report the same samples.
  explicit Rounds(comm::Group control = {}, int64_t copies = 1);
  void begin(const RankReport& mine);
  const std::vector<RankReport>& reports();  // of this round, by rank; waits for it
  double weight();                           // of the whole batch
  double stop();
  double profile();  // the largest wish

 private:
  comm::Group control_;
  int64_t copies_;
  at::Tensor mine_, all_;
  comm::Pending under_way_;
  std::vector<RankReport> reports_;
};

}  // namespace braid::train
