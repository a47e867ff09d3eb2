// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::cuda {

// kernels::column_sum of rows on the GPU.
at::Tensor column_sum(const at::Tensor& rows, c10::ScalarType dtype);

}  // namespace braid::cuda
