// SPDX-License-Identifier: BSD-3-Clause
// Layer and RMS normalisation over the last dimension, with the addition before it: one pass over
// memory forward, one backward, and one or two saved numbers a row beside the input.
//
//   at::Tensor y = kernels::norm_rows(x, {weight, bias});  // (x - mean) / std * weight + bias
//   at::Tensor z = kernels::norm_rows(x, {weight}, {.eps = 1e-5});  // x / rms * weight
//   auto [sum, normed] = kernels::add_norm_rows(x, branch, {weight, bias},
//                                                   {.dtype = c10::kBFloat16});
#pragma once
#include <optional>

#include <ATen/core/Tensor.h>

#include "braid/kernels/dropout.h"

namespace braid::kernels {

struct NormWeights {
  at::Tensor weight;     // [width]
  at::Tensor bias = {};  // [width]: layer norm; undefined: RMS norm
};

struct NormOptions {
  double eps = 1e-5;
  std::optional<c10::ScalarType> dtype = {};  // of the result; that of x unless given
  // Numbers of a row of the result and of the branch: those of x, then zeros (kernels/lanes.h). 0:
  // as many as x has.
  int64_t lanes = 0;
};

struct NormOfSum {
  at::Tensor sum;  // x + branch, in the dtype of x
  at::Tensor y;    // normalised
};

// x [..., width], weights [width]; any floating dtypes. Computed in fp32, in fp64 if x is.
at::Tensor norm_rows(const at::Tensor& x, const NormWeights& weights,
                     const NormOptions& options = {});

// The sum is rounded to the dtype of x before it is normalised. branch: sizes of x, any dtype,
// samples of it dropped on the way; if it is undefined, the sum is x itself: who goes on with that
// one gets one gradient, not two to add.
NormOfSum add_norm_rows(const at::Tensor& x, const Branch& branch, const NormWeights& weights,
                        const NormOptions& options = {});

}  // namespace braid::kernels
