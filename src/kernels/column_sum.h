// SPDX-License-Identifier: BSD-3-Clause
// The sum of all rows, of which gradients of biases are made.
#pragma once
#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// x [rows, width] -> [width] in `dtype`. Summed in fp32 or better, in an order that depends on
// sizes alone.
at::Tensor column_sum(const at::Tensor& x, c10::ScalarType dtype);

// Its kernels, for other operators that sum rows in the same way.
at::Tensor column_sum_cpu(const at::Tensor& x, c10::ScalarType dtype);
at::Tensor column_sum_meta(const at::Tensor& x, c10::ScalarType dtype);

// On CUDA blocks of threads sum some rows of up to sum_columns columns each, and meet in a buffer
// of [stretches, width] numbers. A block has all it can read at once, or more.
constexpr int64_t sum_columns = 2048, sum_at_once = 8 * sum_columns, sum_blocks = int64_t{132} * 4;
inline int64_t sum_stretches(int64_t rows, int64_t width) {
  const int64_t across = std::max<int64_t>(1, (width + sum_columns - 1) / sum_columns);
  const int64_t most = (rows * width + sum_at_once - 1) / sum_at_once;
  return std::max<int64_t>(1, std::min({rows, most, sum_blocks}) / across);
}

}  // namespace braid::kernels
