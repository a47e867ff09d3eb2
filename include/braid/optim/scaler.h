// SPDX-License-Identifier: BSD-3-Clause
// Dynamic loss scaling for fp16, all on the device: no host read in a step.
//
//   optim::LossScaler scaler({}, device);
//   (loss * scaler.scale()).backward();
//   at::Tensor found_inf = scaler.check(params);         // 1 if any gradient is not finite
//   optimizer.step(lr, found_inf, scaler.inverse());
//   scaler.update(found_inf);
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/options.h"
#include "braid/core/param.h"
#include "braid/core/state.h"

namespace braid::optim {

struct ScalerOptions {
  double initial = 65536;
  double growth = 2;
  double backoff = 0.5;
  int64_t interval = 2000;  // clean steps before the scale grows
};
void describe(Fields& fields, ScalerOptions& options);

class LossScaler {
 public:
  LossScaler(ScalerOptions options, c10::Device device);
  const at::Tensor& scale() const { return scale_; }
  at::Tensor inverse() const;  // 1 / scale
  // 1 if a gradient is not finite, here or on another of the owners of the pieces; the gradients
  // stay as they are.
  at::Tensor check(const std::vector<Param>& params, const comm::Group& owners = {}) const;
  void update(const at::Tensor&
                  found_inf);  // 1: scale * backoff; 0: after `interval` clean steps scale * growth
  State state() const;         // "scale", "growth"
  void load(const State& state);

 private:
  ScalerOptions options_;
  at::Tensor scale_;   // f32 scalar
  at::Tensor growth_;  // i32 scalar: clean steps so far
};

}  // namespace braid::optim
