// SPDX-License-Identifier: BSD-3-Clause
// What keeps the ranks of the data and shard axes one model: gradients are summed over them, and
// whoever holds a piece of the weights gets the gradient of that piece. Replicate and Zero are one.
//
//   sync.hold(micro + 1 < micros);  // before each backward pass of a step
//   loss.backward();
//   sync.finish();                  // .grad() of sync.params() is there
//   optimizer.step();               // over sync.params()
//   sync.publish();                 // the model computes with the new weights
#pragma once
#include <functional>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/param.h"

namespace braid::parallel {

// Over which ranks the gradient of a parameter is summed, beside those that shard it.
using ReplicasOf = std::function<comm::Group(const Param&)>;

class Sync {
 public:
  virtual ~Sync() = default;
  // What the optimizer updates: whole parameters, or the pieces that this rank holds.
  virtual const std::vector<Param>& params() const = 0;
  // Ranks whose params() together are the model, each element once if repeated ones are left out:
  // norms are summed over them. One rank: whole ones.
  virtual const comm::Group& owners() const = 0;
  // While on, a backward pass is not the last one of its step.
  virtual void hold(bool on) = 0;
  virtual void finish() = 0;
  // All ranks, after params() changed: by the optimizer, by swapped averages, by a loaded state.
  virtual void publish() = 0;
};

}  // namespace braid::parallel
