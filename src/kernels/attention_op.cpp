// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/attention_op.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

namespace braid::kernels {
namespace {

Attended attention_cpu(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                       double scale) {
  const auto [out, sums] =
      at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, causal, {}, scale);
  return {out, sums.unsqueeze(-1).contiguous()};
}

AttendedGrads attention_grad_cpu(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                                 const at::Tensor& v, const at::Tensor& out, const at::Tensor& sums,
                                 bool causal, double scale) {
  const AttendedGrads found = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      grad, q, k, v, out, sums.squeeze(-1), 0.0, causal, {}, scale);
  const AttendedGrads grads = fresh_gradients(q, k, v);
  std::get<0>(grads).copy_(std::get<0>(found));
  std::get<1>(grads).copy_(std::get<1>(found));
  std::get<2>(grads).copy_(std::get<2>(found));
  return grads;
}

// "is_causal" is what the operator log looks for. Meta kernels: meta_attention.cpp.
TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "attention(Tensor q, Tensor k, Tensor v, bool is_causal, float scale) -> (Tensor out, Tensor "
      "logsumexp)");
  library.def(
      "attention_grad(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor logsumexp, "
      "bool is_causal, float scale) -> (Tensor to_q, Tensor to_k, Tensor to_v)");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("attention", &attention_cpu);
  library.impl("attention_grad", &attention_grad_cpu);
}

Attended call_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                        double scale) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::attention", "")
          .typed<Attended(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, double)>();
  return op.call(q, k, v, causal, scale);
}

// saved: q, k, v, out, log of sums.
AttendedGrads call_attention_grad(const at::Tensor& grad, const std::vector<at::Tensor>& saved,
                                  bool causal, double scale) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::attention_grad", "")
          .typed<AttendedGrads(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                               const at::Tensor&, const at::Tensor&, const at::Tensor&, bool,
                               double)>();
  return op.call(grad, saved[0], saved[1], saved[2], saved[3], saved[4], causal, scale);
}

struct Attend : torch::autograd::Function<Attend> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, bool causal, double scale) {
    const auto [out, sums] = call_attention(q, k, v, causal, scale);
    context->saved_data["causal"] = causal;
    context->saved_data["scale"] = scale;
    context->save_for_backward({q, k, v, out.detach(), sums});
    return out;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto [to_q, to_k, to_v] = call_attention_grad(grads[0], context->get_saved_variables(),
                                                        context->saved_data["causal"].toBool(),
                                                        context->saved_data["scale"].toDouble());
    return {to_q, to_k, to_v, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, bool causal,
                  double scale) {
  return Attend::apply(q, k, v, causal, scale);
}

}  // namespace braid::kernels
