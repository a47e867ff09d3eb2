// SPDX-License-Identifier: BSD-3-Clause
// What the nodes of linear layers share (linear.cpp, linear_fp8.cpp).
#pragma once
#include <cstdint>
#include <vector>

#include <torch/csrc/autograd/function.h>

#include "braid/kernels/linear.h"

namespace braid::kernels {

// One layer of a node: what its gradients look like.
struct LayerShape {
  int64_t out = 0;
  c10::ScalarType weight = c10::kFloat, bias = c10::kFloat;
  bool by_rows = true, biased = false;
};
std::vector<LayerShape> shapes_of(const std::vector<LinearWeights>& layers);

// Next edges of a node: x, up, then weight and bias of each layer.
torch::autograd::edge_list edges_to(const Activated& input,
                                    const std::vector<LinearWeights>& layers);

std::vector<int64_t> with_width(const at::Tensor& x, int64_t width);  // sizes, another last one

// [..., all outputs] cut up, one part a layer.
std::vector<at::Tensor> parts_of(const at::Tensor& whole, const std::vector<LayerShape>& shapes);

// x [rows, in], weight [out, in], bias [out] -> what at::linear gives, and gelu_tanh of it.
struct LinearGelu {
  at::Tensor h, value;
};
LinearGelu linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// The dtype of what is multiplied is bf16. `graph`: a backward pass may follow.
std::vector<at::Tensor> fp8_linears(const Activated& input,
                                    const std::vector<LinearWeights>& layers, Fp8 how, bool graph);

}  // namespace braid::kernels
