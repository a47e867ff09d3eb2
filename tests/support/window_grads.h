// SPDX-License-Identifier: BSD-3-Clause
// The backward pass of window attention by itself, with the result once more.
#pragma once
#include <tuple>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

#include "braid/kernels/window_attention.h"

namespace braid::test {

struct WindowGrads {
  at::Tensor qkv, table;  // gradients, in the dtypes of what they are of
  at::Tensor value;       // what window_attention gives
};

inline WindowGrads window_grads(const at::Tensor& grad, const at::Tensor& qkv,
                                const at::Tensor& table, const kernels::WindowOptions& o) {
  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::window_attention_grad", "")
                             .typed<Results(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                            int64_t, at::IntArrayRef, double, bool)>();
  const auto wide = qkv.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::vector<int64_t> edges = {o.roll_rows, o.roll_columns, o.seam_rows, o.seam_columns};
  const auto [to_qkv, to_table, value] =
      op.call(grad, qkv.detach(), table.detach().to(wide), o.window, edges, o.scale, true);
  return {to_qkv, to_table.to(table.scalar_type()), value};
}

}  // namespace braid::test
