// SPDX-License-Identifier: BSD-3-Clause
// Activations between the two layers of an MLP. They keep their inputs for the backward pass and
// compute the rest again there.
//
//   at::Tensor a = kernels::activated({kernels::Activation::gelu_tanh, h});
//   at::Tensor b = kernels::activated({kernels::Activation::swiglu, gate, up});   // of one shape
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

enum class Activation : uint8_t {
  none,
  gelu,       // x Phi(x), by the error function
  gelu_tanh,  // GPT-2's approximation of it
  swiglu,     // silu(gate) up
};

// How a tensor is made once more, which costs less than to keep it: of tensors that are kept
// anyway. `make` holds none, and runs without a graph.
struct Again {
  std::vector<at::Tensor> of;
  std::function<at::Tensor(const std::vector<at::Tensor>& of)> make;
};

// What enters a linear layer: a tensor, or an activation of one or two that is not computed yet.
// Then the layer keeps these and not the activation (kernels/linear.h).
struct Activated {
  Activated(at::Tensor input) : x(std::move(input)) {}  // NOLINT: a tensor is one
  Activated(Activation of, at::Tensor input, at::Tensor second = {})
      : kind(of), x(std::move(input)), up(std::move(second)) {}
  Activated(at::Tensor input, std::shared_ptr<const Again> made)
      : x(std::move(input)), again(std::move(made)) {}
  Activation kind = Activation::none;
  at::Tensor x;                             // or the gate of swiglu
  at::Tensor up;                            // of swiglu alone
  std::shared_ptr<const Again> again = {};  // of x without an activation: the layer keeps again->of
};

at::Tensor activated(const Activated& input);

// Without a graph. `grad` of the activation becomes that of its x (of `up` for swiglu) in place.
struct ActivationBack {
  at::Tensor value;   // the activation once more
  at::Tensor d_gate;  // of swiglu alone
};
at::Tensor activation_value(const Activated& input);
ActivationBack activation_back(const Activated& input, at::Tensor& grad);

}  // namespace braid::kernels
