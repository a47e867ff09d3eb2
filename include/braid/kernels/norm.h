// SPDX-License-Identifier: BSD-3-Clause
// RMS normalisation over the last dimension with one saved number a row beside the input.
//
//   at::Tensor y = kernels::rms_norm(x, weight, 1e-5);   // x / sqrt(mean(x^2) + eps) * weight
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

// x [..., width], weight [width]; any floating dtypes. Computed in fp32 (fp64 for fp64), given in
// the dtype of x.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps);

}  // namespace braid::kernels
