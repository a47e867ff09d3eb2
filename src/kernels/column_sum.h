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

// On CUDA blocks of threads sum some rows of some columns each, and meet in a buffer of
// [stretches, width] numbers.
constexpr int64_t sum_columns = 256, sum_rows = 8, sum_blocks = int64_t{132} * 8;
inline int64_t sum_stretches(int64_t rows, int64_t width) {
  const int64_t across = (width + sum_columns - 1) / sum_columns;
  const int64_t most = (rows + 4 * sum_rows - 1) / (4 * sum_rows);
  return std::max<int64_t>(1, std::min(most, sum_blocks / std::max<int64_t>(across, 1)));
}

}  // namespace braid::kernels
