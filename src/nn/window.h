// SPDX-License-Identifier: BSD-3-Clause
// Square windows of images in which Swin blocks attend, and what edges of shifted windows may not
// see.
//
//   at::Tensor windows = to_windows(x, 8);            // [B, H, W, C] -> [B H/8 W/8, 64, C]
//   at::Tensor image = from_windows(windows, x.sizes(), 8);
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::nn {

at::Tensor to_windows(const at::Tensor& image, int64_t window);
at::Tensor from_windows(const at::Tensor& windows, at::IntArrayRef image, int64_t window);

// [w w, w w] int64: entry (i, j) is the row of the bias table for tokens i and j of a window.
at::Tensor relative_index(int64_t window);

// [4, w w, w w] of 0 and -100, for windows of an image rolled by window / 2: inside, right edge,
// bottom edge, corner. At an edge a window holds pixels of opposite sides of the image, which must
// not see each other.
at::Tensor shift_masks(int64_t window);

// Adds the masks to the scores of edge windows, in place; scores [B, rows, columns, heads, w w, w
// w] of windows. at_bottom: the last row of windows is that of the image, not of a band above it.
void add_shift_masks(const at::Tensor& scores, const at::Tensor& masks, bool at_bottom = true);

// The same for the windows of an image, as a tensor of zeros and masks to be added: [rows columns,
// w w, w w]. not shifted: zeros alone.
at::Tensor window_masks(const at::Tensor& masks, int64_t rows, int64_t columns, bool shifted);

// Reflects the image at its bottom and right edge until both sides are multiples of `window`; [B,
// C, H, W] of any size.
at::Tensor padded_to(const at::Tensor& image, int64_t window);

}  // namespace braid::nn
