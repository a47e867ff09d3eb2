// SPDX-License-Identifier: BSD-3-Clause
// The CPU kernels of activation.h, called by its dispatcher operators; those of CUDA are in
// src/cuda/activation.cu.
#pragma once
#include <optional>
#include <tuple>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

using TwoTensors = std::tuple<at::Tensor, at::Tensor>;
using SumDtype = std::optional<c10::ScalarType>;

at::Tensor gelu_cpu(const at::Tensor& h, bool tanh);
at::Tensor gelu_grad_cpu(const at::Tensor& h, const at::Tensor& grad, bool tanh);
// grad becomes the gradient of h; the activation, and the sum over all rows of the gradient.
TwoTensors gelu_grad_in_place_cpu(const at::Tensor& h, at::Tensor& grad, bool tanh, SumDtype sum);

at::Tensor swiglu_cpu(const at::Tensor& gate, const at::Tensor& up);
TwoTensors swiglu_grad_cpu(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& grad);
// grad becomes that of `up`; the activation, and the gradient of the gate.
TwoTensors swiglu_grad_in_place_cpu(const at::Tensor& gate, const at::Tensor& up, at::Tensor& grad);

}  // namespace braid::kernels
