// SPDX-License-Identifier: BSD-3-Clause
// Local SGD: every rank trains on its own, and every few steps the weights are averaged. With
// `slow_momentum`, SlowMo: the averages themselves move with momentum.
//
//   parallel::LocalSgd local(named_params(*model), world, {.every = 8, .start = 500});
//   for (int64_t step = 0; step < steps; ++step) {
//     loss(batch(step)).backward();
//     local.average_gradients(step);                // until step 500 a step is one of all ranks
//     optimizer.step(lr);
//     local.average_weights(step, lr);              // after every 8th step
//     optimizer.zero_grad();
//   }
//   local.average_now();                            // before weights are saved or evaluated
//
// All ranks of the group make the same calls, and start from the same weights.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/options.h"
#include "braid/core/param.h"
#include "braid/core/state.h"

namespace braid::parallel {

struct LocalSgdOptions {
  int64_t every = 8;  // steps between two averages
  int64_t start = 0;  // steps before the first local one, with averaged gradients
  std::optional<double> slow_momentum = {};  // of SlowMo; unset: averages are taken as they are
  double slow_lr = 1;                        // of SlowMo: the share of its step that is made
  Bytes bucket = {25 << 20};                 // weights that travel in one message
};
void describe(Fields& fields, LocalSgdOptions& options);

class LocalSgd {
 public:
  LocalSgd(std::vector<Param> params, comm::Group replicas, LocalSgdOptions options = {});
  ~LocalSgd();
  LocalSgd(LocalSgd&&) noexcept;
  LocalSgd& operator=(LocalSgd&&) noexcept;

  bool synchronous(int64_t step) const;  // gradients of this step (from 0) are averaged
  // Between backward and update. A parameter without gradient on this rank counts as zeros.
  void average_gradients(int64_t step);
  // After the update of every step. Gives whether the weights were averaged. `also`: tensors that
  // are averaged with them, in place, such as Optimizer::state(): momentum, and masters of narrow
  // weights. Its "/step" counters stay as they are.
  bool average_weights(int64_t step, double lr, const State& also = {});
  // What the steps since the last average have done, if there were any.
  bool average_now(const State& also = {});
  bool agree() const;  // no local step since the last average

  // SlowMo: "<parameter>/slow_weight" and "/slow_momentum". Save after average_now().
  State state() const;
  void load(const State& state);  // copies; throws StorageError if of another model

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::parallel
