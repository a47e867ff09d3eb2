// SPDX-License-Identifier: BSD-3-Clause
// The products of a linear layer's backward pass, shared by linear.cpp and deferred.cpp: the order
// of a product decides its rounding.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

// Whether [out, in] lies row by row: its gradient then does, too.
bool lies_by_rows(const at::Tensor& weight);

// grad^T x of the rows, in `dtype`: summed in fp32 and not rounded on the way where that is wider
// than what is multiplied.
at::Tensor weight_gradient(const at::Tensor& grad, const at::Tensor& x, bool by_rows,
                           c10::ScalarType dtype);
at::Tensor bias_gradient(const at::Tensor& grad, c10::ScalarType dtype);
at::Tensor input_gradient(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight);

}  // namespace braid::kernels
