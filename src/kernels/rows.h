// SPDX-License-Identifier: BSD-3-Clause
// [..., width] as rows; on the CPU and for CUDA alike.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

inline at::Tensor as_rows(const at::Tensor& x) {  // [rows, width]
  return x.dim() == 2 ? x : x.reshape({-1, x.size(-1)});
}

// Likewise with the numbers of a row side by side: without a copy wherever rows are evenly spaced.
inline at::Tensor side_by_side_rows(const at::Tensor& x) {
  const at::Tensor rows = as_rows(x);
  return rows.stride(1) == 1 || rows.size(1) == 1 ? rows : rows.contiguous();
}

}  // namespace braid::kernels
