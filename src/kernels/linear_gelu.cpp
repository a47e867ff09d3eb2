// SPDX-License-Identifier: BSD-3-Clause
// A linear layer that gives gelu_tanh of its output beside it, and the gradient of one behind
// gelu_tanh.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linear.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "kernels/column_sum.h"
#include "kernels/linear_node.h"

namespace braid::kernels {
namespace {

using OutputAndGelu = std::tuple<at::Tensor, at::Tensor>;

OutputAndGelu linear_gelu_cpu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) {
  const at::Tensor h = at::linear(x, weight, bias);
  return {h, at::gelu(h, "tanh")};
}

OutputAndGelu linear_gelu_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&) {
  const auto fresh = [&] { return at::empty({x.size(0), weight.size(0)}, x.options()); };
  const at::Tensor h = fresh();
  return {h, fresh()};
}

using GradAndSum = std::tuple<at::Tensor, at::Tensor>;
using WantedSum = std::optional<c10::ScalarType>;

GradAndSum gelu_linear_grad_cpu(const at::Tensor& grad, const at::Tensor& weight,
                                const at::Tensor& h, WantedSum sum) {
  at::Tensor d_h = grad.mm(weight);
  at::gelu_backward_out(d_h, d_h, h, "tanh");
  return {d_h, sum ? column_sum_cpu(d_h, *sum) : at::Tensor()};
}

// The scratch is that of column_sum.
GradAndSum gelu_linear_grad_meta(const at::Tensor& grad, const at::Tensor& weight,
                                 const at::Tensor&, WantedSum sum) {
  const at::Tensor d_h = at::empty({grad.size(0), weight.size(1)}, grad.options());
  return {d_h, sum ? column_sum_meta(d_h, *sum) : at::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("linear_gelu(Tensor x, Tensor weight, Tensor bias) -> (Tensor, Tensor)");
  // Of gelu_tanh(h) weight^T: the gradient of h, and the sum over all its rows.
  library.def(
      "gelu_linear_grad(Tensor grad, Tensor weight, Tensor h, ScalarType? sum)"
      " -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("linear_gelu", &linear_gelu_cpu);
  library.impl("gelu_linear_grad", &gelu_linear_grad_cpu);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("linear_gelu", &linear_gelu_meta);
  library.impl("gelu_linear_grad", &gelu_linear_grad_meta);
}

}  // namespace

LinearGelu linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::linear_gelu", "")
          .typed<OutputAndGelu(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const auto [h, value] = op.call(x, weight, bias);
  return {h, value};
}

GeluLinearGrad gelu_linear_grad(const at::Tensor& grad, const at::Tensor& weight,
                                const at::Tensor& h, std::optional<c10::ScalarType> sum) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::gelu_linear_grad", "")
          .typed<GradAndSum(const at::Tensor&, const at::Tensor&, const at::Tensor&, WantedSum)>();
  const auto [d_h, total] = op.call(grad, weight, h, sum);
  return {d_h, total};
}

}  // namespace braid::kernels
