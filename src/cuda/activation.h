// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <optional>

#include <ATen/core/Tensor.h>

namespace braid::cuda {

// The activation of h into y, of the same sizes.
void gelu_into(const at::Tensor& h, const at::Tensor& y, bool tanh);
// `grad` of the activation becomes that of h; its sum over all rows, if asked for.
at::Tensor gelu_grad_into(const at::Tensor& h, const at::Tensor& grad, bool tanh,
                          std::optional<c10::ScalarType> sum);

}  // namespace braid::cuda
