// SPDX-License-Identifier: BSD-3-Clause
// The CPU kernels of norm.h, called by its dispatcher operators; those of CUDA are in src/cuda.
#pragma once
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// sum (undefined without a branch), y, statistics [rows, 1 / std or mean and 1 / std]
using NormForward = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
// of x (and of the branch), of the branch if its dtype is another one, of weight, of bias; y again;
// the sum over all rows of the branch's
using NormGrads =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// All tensors contiguous; x [rows, width]. Rows of branch, y, grad and grad_branch may be longer:
// what is behind their numbers is not read, and zeros are written there.
struct NormRun {
  at::Tensor x, branch, weight, bias, sum, y, statistics;
  double eps;
  at::Tensor keep = {};  // samples of the branch; undefined: all of them
  double rate = 0;
};
struct NormGradRun {
  at::Tensor grad, grad_sum, sum, weight, bias, statistics;  // bias: for y alone
  at::Tensor grad_x, grad_branch, grad_weight, grad_bias, y;
  at::Tensor keep = {};
  double rate = 0;
};

void norm_on_cpu(const NormRun& run);
void norm_grad_on_cpu(const NormGradRun& run);

}  // namespace braid::kernels
