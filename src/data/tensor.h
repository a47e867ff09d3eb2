// SPDX-License-Identifier: BSD-3-Clause
// The few tensor makers of the data module in one place: their headers are slow to compile.
// Internal.
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::data {

at::Tensor empty_tensor(const std::vector<int64_t>& shape, c10::ScalarType dtype,
                        c10::Device device = c10::kCPU);
std::vector<int64_t> random_permutation(int64_t size,
                                        uint64_t seed);  // of a CPU generator of its own

}  // namespace braid::data
