// SPDX-License-Identifier: BSD-3-Clause
// A linear layer that gives gelu_tanh of its output beside it.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/library.h>

#include <tuple>

#include "kernels/activation_cpu.h"
#include "kernels/linear_node.h"

namespace braid::kernels {
namespace {

using OutputAndGelu = std::tuple<at::Tensor, at::Tensor>;

OutputAndGelu linear_gelu_cpu(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) {
  const at::Tensor h = at::linear(x, weight, bias);
  return {h, gelu_cpu(h, /*tanh=*/true)};
}

OutputAndGelu linear_gelu_meta(const at::Tensor& x, const at::Tensor& weight, const at::Tensor&) {
  const auto fresh = [&] { return at::empty({x.size(0), weight.size(0)}, x.options()); };
  const at::Tensor h = fresh();
  return {h, fresh()};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("linear_gelu(Tensor x, Tensor weight, Tensor bias) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("linear_gelu", &linear_gelu_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("linear_gelu", &linear_gelu_meta); }

}  // namespace

LinearGelu linear_gelu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::linear_gelu", "")
          .typed<OutputAndGelu(const at::Tensor&, const at::Tensor&, const at::Tensor&)>();
  const auto [h, value] = op.call(x, weight, bias);
  return {h, value};
}

}  // namespace braid::kernels
