// SPDX-License-Identifier: BSD-3-Clause
// Host memory that a save is copied into, kept from one save to the next.
//
//   staging.take(plans, snapshot.state);   // part.host of each part now gives the copy
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/state.h"
#include "checkpoint/shard.h"

namespace braid::checkpoint {

class Staging {
 public:
  void take(std::vector<ShardPlan>& plans, const State& state);

 private:
  at::Tensor buffer_;  // bytes; page-locked if tensors come from a GPU
};

// Without a copy: each part is taken from its tensor when it is written.
void take_late(std::vector<ShardPlan>& plans, const State& state);

}  // namespace braid::checkpoint
