// SPDX-License-Identifier: BSD-3-Clause
// Exponential moving average of the weights: shadow = decay * shadow + (1 - decay) * weight.
//
//   optim::Ema ema(named_params(*model), 0.999);
//   optimizer.step(lr); ema.update();
//   ema.swap(); evaluate(*model); ema.swap();   // look at the averaged weights
#pragma once
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"
#include "braid/core/state.h"

namespace braid::optim {

class Ema {
 public:
  // `seen`: dtype in which the model computes with the weights, where params hold more bits of them
  // (parallel/host.h): averages are of those.
  Ema(std::vector<Param> params, double decay, std::optional<c10::ScalarType> seen = {});
  void update();
  void swap();  // weights <-> shadow: before and after an evaluation
  bool swapped() const { return swapped_; }
  State state() const;  // "<parameter>"; shares memory
  void load(const State& state);

 private:
  void expect_own_weights(const char* doing) const;
  std::vector<Param> params_;
  std::vector<at::Tensor>
      shadow_;  // fp32 or wider: in bf16 a step of (1 - decay) would round to nothing
  std::vector<at::Tensor> kept_;  // the weights while swapped
  double decay_;
  std::optional<c10::ScalarType> seen_;
  bool swapped_ = false;
};

}  // namespace braid::optim
