// SPDX-License-Identifier: BSD-3-Clause
// Attention within square windows of an image, as Swin blocks do it: roll, windows, scores with
// the relative position bias and the mask of shifted windows, weighted sum, and the way back, in
// one operator. Neither windows nor scores nor masks are written to memory.
//
//   qkv = at::linear(x, w);                                          // [B, H, W, 3 heads d]
//   y = kernels::window_attention(qkv, table, {.window = 8, .scale = 1 / std::sqrt(d)});
//   // [B, H, W, heads d]
//   y = kernels::window_attention(qkv, table, kernels::shifted_windows(8, scale));
//
// Last dimension of qkv: all heads of q, of k, of v. Sums and softmax are fp32 or better.
//
// The backward pass makes scores and weights once more, so it can give the result, too: who needs
// both need not keep it.
//
//   const auto [to_qkv, to_table, again] =
//       kernels::window_attention_grads(grad, qkv, table, options);
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

struct WindowOptions {
  int64_t window = 8;  // pixels of a side; both sides of the image are multiples
  double scale = 1;    // of the scores
  // Windows begin at this pixel of the image, which goes on at its other side.
  int64_t roll_rows = 0, roll_columns = 0;
  // So many last rows (columns) of the last windows are of the other side of the image: they and
  // the rest do not see each other.
  int64_t seam_rows = 0, seam_columns = 0;
};

// The windows of every second Swin block: moved by half a window.
inline WindowOptions shifted_windows(int64_t window, double scale) {
  const int64_t half = window / 2;
  return {.window = window,
          .scale = scale,
          .roll_rows = half,
          .roll_columns = half,
          .seam_rows = half,
          .seam_columns = half};
}

// table [(2 window - 1)^2, heads]: row (2 window - 1) (r_i - r_j + window - 1) + c_i - c_j + window
// - 1 is added to the score of the query at (r_i, c_i) and the key at (r_j, c_j).
at::Tensor window_attention(const at::Tensor& qkv, const at::Tensor& table,
                            const WindowOptions& options);

struct WindowGrads {
  at::Tensor qkv, table;  // gradients, in the dtypes of what they are of
  at::Tensor value;       // what window_attention gives, bit for bit
};

// The backward pass by itself; nothing here is recorded for autograd.
WindowGrads window_attention_grads(const at::Tensor& grad, const at::Tensor& qkv,
                                   const at::Tensor& table, const WindowOptions& options);

}  // namespace braid::kernels
