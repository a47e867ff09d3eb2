// SPDX-License-Identifier: BSD-3-Clause
// Exponential moving average of the weights: shadow = decay * shadow + (1 - decay) * weight.
#pragma once
#include <vector>

#include "braid/core/param.h"
#include "braid/core/state.h"

namespace braid::optim {

class Ema {
 public:
  Ema(std::vector<Param> params, double decay);
  void update();
  void swap();   // weights <-> shadow: before and after an evaluation
  State state() const;
  void load(const State& state);

 private:
  std::vector<Param> params_;
  std::vector<at::Tensor> shadow_;
  double decay_;
};

}  // namespace braid::optim
