// SPDX-License-Identifier: BSD-3-Clause
// In how many parts the rows of a norm are added up for the gradients of its weights: the CUDA
// kernel writes one sum a part, so the dry run must know the number.
#pragma once
#include <algorithm>
#include <cstdint>

namespace braid::kernels {

// Two blocks of threads for each of the 132 processors of an H100 or H200.
inline constexpr int64_t most_norm_parts = 264;

inline int64_t norm_parts(int64_t rows) { return std::min(rows, most_norm_parts); }

}  // namespace braid::kernels
