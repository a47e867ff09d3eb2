// SPDX-License-Identifier: BSD-3-Clause
#include "window.h"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

namespace braid::nn {
namespace {

at::Tensor counted(int64_t end) { return at::arange(end, at::TensorOptions(c10::kLong)); }

// Table of f(row of i - row of j) style differences: [w w, w w].
at::Tensor differences(const at::Tensor& of_token) {
  return of_token.unsqueeze(1).sub(of_token.unsqueeze(0));
}

// One dimension longer by `more` mirrored values; at most size - 1 can be mirrored at a time.
at::Tensor mirrored(at::Tensor x, int64_t dim, int64_t more) {
  while (more > 0) {
    const int64_t size = x.size(dim), now = std::max<int64_t>(1, std::min(more, size - 1));
    const at::Tensor tail = size == 1 ? x : x.narrow(dim, size - 1 - now, now).flip({dim});
    x = at::cat({x, tail}, dim);
    more -= now;
  }
  return x;
}

int64_t missing_to(int64_t size, int64_t window) { return (window - size % window) % window; }

}  // namespace

at::Tensor to_windows(const at::Tensor& image, int64_t window) {
  const auto b = image.size(0), rows = image.size(1) / window, columns = image.size(2) / window;
  return image.reshape({b, rows, window, columns, window, image.size(3)})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({b * rows * columns, window * window, image.size(3)});
}

at::Tensor from_windows(const at::Tensor& windows, at::IntArrayRef image, int64_t window) {
  const auto rows = image[1] / window, columns = image[2] / window, width = windows.size(2);
  return windows.view({image[0], rows, columns, window, window, width})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({image[0], image[1], image[2], width});
}

at::Tensor relative_index(int64_t window) {
  const at::Tensor token = counted(window * window);
  const at::Tensor rows = differences(at::floor_divide(token, window)).add_(window - 1);
  const at::Tensor columns = differences(token.remainder(window)).add_(window - 1);
  return rows.mul_(2 * window - 1).add_(columns);
}

at::Tensor shift_masks(int64_t window) {
  const int64_t seam =
      window - window / 2;  // rows from here on came from the other side of the image
  const at::Tensor token = counted(window * window);
  const at::Tensor below =
      differences(at::floor_divide(token, window).ge(seam).to(c10::kLong)).ne(0);
  const at::Tensor right = differences(token.remainder(window).ge(seam).to(c10::kLong)).ne(0);
  const at::Tensor inside = at::zeros_like(below);
  return at::stack({inside, right, below, below.logical_or(right)}).to(c10::kDouble).mul_(-100);
}

void add_shift_masks(const at::Tensor& scores, const at::Tensor& masks, bool at_bottom) {
  // A constant changes no gradient, so the sum stays out of the graph: no copy of the scores, no
  // nodes for the slices.
  at::NoGradGuard no_graph;
  const at::Tensor all = scores.detach();
  const int64_t rows = scores.size(1), columns = scores.size(2);
  all.narrow(1, 0, at_bottom ? rows - 1 : rows).narrow(2, columns - 1, 1).add_(masks[1]);
  if (!at_bottom) return;
  all.narrow(1, rows - 1, 1).narrow(2, 0, columns - 1).add_(masks[2]);
  all.narrow(1, rows - 1, 1).narrow(2, columns - 1, 1).add_(masks[3]);
}

at::Tensor window_masks(const at::Tensor& masks, int64_t rows, int64_t columns, bool shifted) {
  const int64_t tokens = masks.size(1);
  const at::Tensor all = at::zeros({1, rows, columns, 1, tokens, tokens}, masks.options());
  if (shifted) add_shift_masks(all, masks);
  return all.view({rows * columns, tokens, tokens});
}

at::Tensor padded_to(const at::Tensor& image, int64_t window) {
  const at::Tensor tall = mirrored(image, 2, missing_to(image.size(2), window));
  return mirrored(tall, 3, missing_to(image.size(3), window));
}

}  // namespace braid::nn
