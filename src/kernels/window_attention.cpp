// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/window_attention.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "kernels/meta.h"
#include "kernels/window_places.h"

namespace braid::kernels {
namespace {

using WindowGrads = std::tuple<at::Tensor, at::Tensor>;

at::Tensor window_attention_meta(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                                 at::IntArrayRef edges, double scale) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  return fresh({places.batch, places.height, places.width, places.heads * places.head}, qkv);
}

WindowGrads window_attention_grad_meta(const at::Tensor&, const at::Tensor& qkv,
                                       const at::Tensor& table, int64_t window,
                                       at::IntArrayRef edges, double scale) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  const at::Tensor to_qkv = fresh_contiguous(qkv), to_table = fresh_contiguous(table);
  if (dry_on(c10::kCUDA)) scratch(places.parts() * bytes_of(table), table);
  return {to_qkv, to_table};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "window_attention(Tensor qkv, Tensor table, int window, int[] edges, float scale) -> Tensor");
  library.def(
      "window_attention_grad(Tensor grad, Tensor qkv, Tensor table, int window, int[] edges, float "
      "scale) -> (Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("window_attention", &window_attention_meta);
  library.impl("window_attention_grad", &window_attention_grad_meta);
}

at::Tensor attend_windows(const at::Tensor& qkv, const at::Tensor& table,
                          const std::vector<int64_t>& edges, double scale) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::window_attention", "")
                             .typed<at::Tensor(const at::Tensor&, const at::Tensor&, int64_t,
                                               at::IntArrayRef, double)>();
  return op.call(qkv.detach(), table.detach(), edges.at(0), at::IntArrayRef(edges).slice(1), scale);
}

WindowGrads window_grads(const at::Tensor& grad, const at::Tensor& qkv, const at::Tensor& table,
                         const std::vector<int64_t>& edges, double scale) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::window_attention_grad", "")
          .typed<WindowGrads(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t,
                             at::IntArrayRef, double)>();
  return op.call(grad.detach(), qkv.detach(), table.detach(), edges.at(0),
                 at::IntArrayRef(edges).slice(1), scale);
}

// Keeps q, k and v alone: scores and their sums are made again from them.
struct WindowAttentionFunction : torch::autograd::Function<WindowAttentionFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& qkv,
                            const at::Tensor& table, const std::vector<int64_t>& edges,
                            double scale) {
    context->save_for_backward({qkv, table});
    context->saved_data["edges"] = edges;
    context->saved_data["scale"] = scale;
    return attend_windows(qkv, table, edges, scale);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const auto [to_qkv, to_table] = window_grads(grads[0].contiguous(), saved[0], saved[1],
                                                 context->saved_data["edges"].toIntVector(),
                                                 context->saved_data["scale"].toDouble());
    return {to_qkv, to_table, {}, {}};
  }
};

}  // namespace

at::Tensor window_attention(const at::Tensor& qkv, const at::Tensor& table,
                            const WindowOptions& options) {
  const std::vector<int64_t> edges = {options.window, options.roll_rows, options.roll_columns,
                                      options.seam_rows, options.seam_columns};
  return WindowAttentionFunction::apply(qkv.contiguous(),
                                        table.to(accumulate_dtype(qkv.scalar_type())).contiguous(),
                                        edges, options.scale);
}

}  // namespace braid::kernels
