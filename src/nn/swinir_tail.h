// SPDX-License-Identifier: BSD-3-Clause
// The end of SwinIR: from features of the body to an image of the output size.
//
//   SwinTail tail(*this, options);        // its convolutions become children of the model
//   y = tail.forward(features, input);    // [B, width, H, W] -> [B, channels, scale H, scale W]
#pragma once
#include <memory>
#include <vector>

#include "braid/nn/layers.h"
#include "braid/nn/options.h"

namespace braid::nn {

class SwinTail {
 public:
  SwinTail(Layer& model, const SwinirOptions& options);
  at::Tensor forward(const at::Tensor& features, const at::Tensor& input) const;
  void rows(std::vector<LayerRow>& table, int64_t rows, int64_t columns) const;

 private:
  // A convolution and what follows it.
  struct Step {
    std::shared_ptr<Conv2d> conv;
    int64_t enlarge_before = 1;  // nearest neighbour
    int64_t shuffle_after = 1;   // pixels out of channels
    double slope_after = 1;      // of a leaky ReLU; 1: none
  };
  void pixel_shuffle(Layer& model, const SwinirOptions& options);
  void nearest(Layer& model, const SwinirOptions& options);

  std::vector<Step> steps_;
  bool add_input_ = false, packed_;
  bool in_place_;  // leaky ReLUs write over what the convolution gave
};

}  // namespace braid::nn
