// SPDX-License-Identifier: BSD-3-Clause
// Attention by cuDNN, called without torch between: results may lie anywhere in a larger tensor.
//
//   if (!attend_by_cudnn({.q = q, .k = k, .v = v, .out = out, .sums = sums})) by_torch();
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::cuda {

struct AttentionTensors {
  at::Tensor q, k, v, out, sums;  // [B, heads, N, D]; sums [B, H, N, 1] in fp32
  at::Tensor grad = {}, to_q = {}, to_k = {}, to_v = {};  // of the backward pass
  bool causal = false;
  double scale = 1;
};

// Forward into out and sums or, with a gradient, backward into to_q, to_k, to_v. False: there is no
// kernel for such tensors (cudnn_none.cpp: for no tensors), and nothing was done.
bool attend_by_cudnn(const AttentionTensors& all);

}  // namespace braid::cuda
