// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/window_attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

#include "kernels/again.h"
#include "kernels/meta.h"
#include "kernels/window_places.h"

namespace braid::kernels {
namespace {

using torch::autograd::variable_list;

using WindowResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor window_attention_meta(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                                 at::IntArrayRef edges, double scale) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  return fresh({places.batch, places.height, places.width, places.heads * places.head}, qkv);
}

WindowResults window_attention_grad_meta(const at::Tensor& grad, const at::Tensor& qkv,
                                         const at::Tensor& table, int64_t window,
                                         at::IntArrayRef edges, double scale, bool again) {
  const WindowPlaces places = window_places(qkv, table, window, edges, scale);
  const at::Tensor to_qkv = fresh_contiguous(qkv), to_table = fresh_contiguous(table);
  const at::Tensor value = again ? fresh_contiguous(grad) : at::Tensor();
  if (dry_on(c10::kCUDA)) scratch(places.parts() * bytes_of(table), table);
  return {to_qkv, to_table, value};
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "window_attention(Tensor qkv, Tensor table, int window, int[] edges, float scale) -> Tensor");
  library.def(
      "window_attention_grad(Tensor grad, Tensor qkv, Tensor table, int window, int[] edges, float "
      "scale, bool again) -> (Tensor to_qkv, Tensor to_table, Tensor value)");
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

WindowResults window_results(const at::Tensor& grad, const at::Tensor& qkv, const at::Tensor& table,
                             const std::vector<int64_t>& edges, double scale, bool again) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::window_attention_grad", "")
          .typed<WindowResults(const at::Tensor&, const at::Tensor&, const at::Tensor&, int64_t,
                               at::IntArrayRef, double, bool)>();
  return op.call(grad.detach(), qkv.detach(), table.detach(), edges.at(0),
                 at::IntArrayRef(edges).slice(1), scale, again);
}

// Keeps q, k and v alone: scores and their sums are made again from them.
class WindowNode final : public AgainNode {
 public:
  WindowNode(const variable_list& kept, std::vector<int64_t> edges, double scale)
      : AgainNode(kept, 0), edges_(std::move(edges)), scale_(scale) {}

  std::string name() const override { return "braid::window_attention"; }

 private:
  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list result(num_outputs());
    if (!grads[0].defined()) return result;
    const variable_list saved = kept();
    at::Tensor value;
    std::tie(result[0], result[1], value) =
        window_results(grads[0].contiguous(), saved[0], saved[1], edges_, scale_, awaited());
    grads.clear();
    if (value.defined()) give(value, result);
    return result;
  }

  std::vector<int64_t> edges_;
  double scale_;
};

std::vector<int64_t> window_edges(const WindowOptions& options) {
  return {options.window, options.roll_rows, options.roll_columns, options.seam_rows,
          options.seam_columns};
}

at::Tensor wide_table(const at::Tensor& table, const at::Tensor& qkv) {
  return table.to(accumulate_dtype(qkv.scalar_type())).contiguous();
}

}  // namespace

at::Tensor window_attention(const at::Tensor& given, const at::Tensor& table,
                            const WindowOptions& options) {
  const at::Tensor qkv = given.contiguous(), wide = wide_table(table, qkv);
  const std::vector<int64_t> edges = window_edges(options);
  const bool graph = torch::autograd::compute_requires_grad(qkv, wide);
  const at::NoGradGuard no_grad;
  variable_list outputs = {attend_windows(qkv, wide, edges, options.scale)};
  if (!graph) return outputs[0];
  const std::shared_ptr<WindowNode> node(new WindowNode({qkv, wide}, edges, options.scale),
                                         torch::autograd::deleteNode);
  set_graph(node, {qkv, wide}, outputs);
  return outputs[0];
}

WindowGrads window_attention_grads(const at::Tensor& grad, const at::Tensor& qkv,
                                   const at::Tensor& table, const WindowOptions& options) {
  const at::NoGradGuard no_grad;
  const auto [to_qkv, to_table, value] =
      window_results(grad.contiguous(), qkv.contiguous(), wide_table(table, qkv),
                     window_edges(options), options.scale, /*again=*/true);
  return {to_qkv, to_table.to(table.scalar_type()), value};
}

}  // namespace braid::kernels
