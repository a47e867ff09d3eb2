// SPDX-License-Identifier: BSD-3-Clause
// Activations between the two layers of an MLP. They keep their inputs for the backward pass and
// compute the rest again there.
//
//   at::Tensor a = kernels::activated({kernels::Activation::gelu_tanh, h});
//   at::Tensor b = kernels::activated({kernels::Activation::swiglu, gate, up});   // of one shape
#pragma once
#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

enum class Activation : uint8_t {
  none,
  gelu,       // x Phi(x), by the error function
  gelu_tanh,  // GPT-2's approximation of it
  swiglu,     // silu(gate) up
};

// What enters a linear layer: a tensor, or an activation of one or two that is not computed yet.
// Then the layer keeps these and not the activation (kernels/linear.h).
struct Activated {
  Activated(at::Tensor input) : x(std::move(input)) {}  // NOLINT: a tensor is one
  Activated(Activation of, at::Tensor input, at::Tensor second = {})
      : kind(of), x(std::move(input)), up(std::move(second)) {}
  Activation kind = Activation::none;
  at::Tensor x;   // or the gate of swiglu
  at::Tensor up;  // of swiglu alone
  // The activation, where the kernel that made x gave it on the way (kernels/linear.h): it is used
  // and not kept, and gradients go to x.
  at::Tensor value = {};
};

at::Tensor activated(const Activated& input);

// Without a graph. `grad` of the activation becomes that of its x (of `up` for swiglu) in place.
struct ActivationBack {
  at::Tensor value;   // the activation once more
  at::Tensor d_gate;  // of swiglu alone
  at::Tensor sum;     // of gelu, if asked for: over all rows of the new `grad`
};
at::Tensor activation_value(const Activated& input);
ActivationBack activation_back(const Activated& input, at::Tensor& grad,
                               std::optional<c10::ScalarType> sum = {});

}  // namespace braid::kernels
