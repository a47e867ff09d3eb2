// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::cuda {

// The activation of h into y, of the same sizes.
void gelu_into(const at::Tensor& h, const at::Tensor& y, bool tanh);

}  // namespace braid::cuda
