// SPDX-License-Identifier: BSD-3-Clause
// Questions about dtypes that kernels and their Meta twins ask alike.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

inline bool is_half(const at::Tensor& x) {
  return x.scalar_type() == c10::kHalf || x.scalar_type() == c10::kBFloat16;
}

// What sums and norms are computed in: fp64 for fp64, else fp32.
inline c10::ScalarType accumulate_dtype(c10::ScalarType dtype) {
  return dtype == c10::kDouble ? c10::kDouble : c10::kFloat;
}

}  // namespace braid::kernels
