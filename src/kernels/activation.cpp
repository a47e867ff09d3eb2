// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/activation.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/activation_cpu.h"
#include "kernels/column_sum.h"
#include "kernels/meta.h"
#include "kernels/rows.h"

namespace braid::kernels {
namespace {

// The scratch is that of column_sum.
TwoTensors gelu_grad_meta_(const at::Tensor& h, at::Tensor& grad, bool, SumDtype sum) {
  const at::Tensor value = fresh_contiguous(h);
  return {value, sum ? column_sum_meta(as_rows(grad), *sum) : at::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("gelu(Tensor h, bool tanh) -> Tensor");
  library.def("gelu_grad(Tensor h, Tensor grad, bool tanh) -> Tensor");
  // The gradient in place, the activation, and the sum over all rows of the gradient.
  library.def(
      "gelu_grad_(Tensor h, Tensor(a!) grad, bool tanh, ScalarType? sum) -> (Tensor, Tensor)");
  library.def("swiglu(Tensor gate, Tensor up) -> Tensor");
  library.def("swiglu_grad(Tensor gate, Tensor up, Tensor grad) -> (Tensor, Tensor)");
  // The gradient becomes that of `up`; the activation and the gradient of the gate.
  library.def("swiglu_grad_(Tensor gate, Tensor up, Tensor(a!) grad) -> (Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("gelu", &gelu_cpu);
  library.impl("gelu_grad", &gelu_grad_cpu);
  library.impl("gelu_grad_", &gelu_grad_in_place_cpu);
  library.impl("swiglu", &swiglu_cpu);
  library.impl("swiglu_grad", &swiglu_grad_cpu);
  library.impl("swiglu_grad_", &swiglu_grad_in_place_cpu);
}

TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("gelu", [](const at::Tensor& h, bool) { return fresh_contiguous(h); });
  library.impl("gelu_grad",
               [](const at::Tensor& h, const at::Tensor&, bool) { return fresh_contiguous(h); });
  library.impl("gelu_grad_", &gelu_grad_meta_);
  library.impl("swiglu",
               [](const at::Tensor& gate, const at::Tensor&) { return fresh_contiguous(gate); });
  library.impl("swiglu_grad", [](const at::Tensor& gate, const at::Tensor& up, const at::Tensor&) {
    return TwoTensors(fresh_contiguous(gate), fresh_contiguous(up));
  });
  library.impl("swiglu_grad_", [](const at::Tensor& gate, const at::Tensor&, at::Tensor&) {
    return TwoTensors(fresh_contiguous(gate), fresh_contiguous(gate));
  });
}

template <class Signature>
c10::TypedOperatorHandle<Signature> activation_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").template typed<Signature>();
}

at::Tensor call_gelu(const at::Tensor& h, bool tanh) {
  static const auto op = activation_op<at::Tensor(const at::Tensor&, bool)>("braid::gelu");
  return op.call(h, tanh);
}

at::Tensor call_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  static const auto op =
      activation_op<at::Tensor(const at::Tensor&, const at::Tensor&)>("braid::swiglu");
  return op.call(gate, up);
}

using torch::autograd::variable_list;

struct GeluFunction : torch::autograd::Function<GeluFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& h,
                            bool tanh) {
    context->save_for_backward({h});
    context->saved_data["tanh"] = tanh;
    return call_gelu(h, tanh);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    static const auto op =
        activation_op<at::Tensor(const at::Tensor&, const at::Tensor&, bool)>("braid::gelu_grad");
    const bool tanh = context->saved_data["tanh"].toBool();
    return {op.call(context->get_saved_variables()[0], grads[0], tanh), at::Tensor()};
  }
};

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& gate,
                            const at::Tensor& up) {
    context->save_for_backward({gate, up});
    return call_swiglu(gate, up);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    static const auto op =
        activation_op<TwoTensors(const at::Tensor&, const at::Tensor&, const at::Tensor&)>(
            "braid::swiglu_grad");
    const auto saved = context->get_saved_variables();
    const auto [d_gate, d_up] = op.call(saved[0], saved[1], grads[0]);
    return {d_gate, d_up};
  }
};

}  // namespace

at::Tensor activated(const Activated& input) {
  switch (input.kind) {
    case Activation::none:
      return input.x;
    case Activation::swiglu:
      return SwigluFunction::apply(input.x, input.up);
    default:
      return GeluFunction::apply(input.x, input.kind == Activation::gelu_tanh);
  }
}

at::Tensor activation_value(const Activated& input) {
  if (input.kind == Activation::none) return input.x;
  if (input.value.defined()) return input.value;
  if (input.kind == Activation::swiglu) return call_swiglu(input.x, input.up);
  return call_gelu(input.x, input.kind == Activation::gelu_tanh);
}

ActivationBack activation_back(const Activated& input, at::Tensor& grad, SumDtype sum) {
  if (input.kind == Activation::none) return {input.x, {}, {}};
  if (input.kind == Activation::swiglu) {
    static const auto op =
        activation_op<TwoTensors(const at::Tensor&, const at::Tensor&, at::Tensor&)>(
            "braid::swiglu_grad_");
    const auto [value, d_gate] = op.call(input.x, input.up, grad);
    return {value, d_gate, {}};
  }
  static const auto op = activation_op<TwoTensors(const at::Tensor&, at::Tensor&, bool, SumDtype)>(
      "braid::gelu_grad_");
  const auto [value, total] = op.call(input.x, grad, input.kind == Activation::gelu_tanh, sum);
  return {value, {}, total};
}

}  // namespace braid::kernels
