// SPDX-License-Identifier: BSD-3-Clause
// Where the tokens of windows stand in an image, and which of them see each other: asked alike on
// the CPU and in CUDA kernels.
//
//   const WindowPlaces places = window_places(qkv, table, window, edges, scale);
//   const int64_t pixel = places.pixel(w, token);   // token 0 ... window^2 - 1 of window w
#pragma once
#include <algorithm>
#include <cstdint>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "braid/core/anywhere.h"

namespace braid::kernels {

constexpr double hidden_score = -100;  // added where tokens do not see each other

struct WindowPlaces {
  int64_t batch = 0, height = 0, width = 0;  // of the image
  int64_t window = 8, heads = 1, head = 1;   // head: its width
  int64_t roll_rows = 0, roll_columns = 0, seam_rows = 0, seam_columns = 0;
  double scale = 1;

  BRAID_ANYWHERE int64_t tokens() const { return window * window; }
  BRAID_ANYWHERE int64_t entries() const { return (2 * window - 1) * (2 * window - 1); }
  BRAID_ANYWHERE int64_t rows() const { return height / window; }  // of windows
  BRAID_ANYWHERE int64_t columns() const { return width / window; }
  BRAID_ANYWHERE int64_t windows() const { return batch * rows() * columns(); }

  BRAID_ANYWHERE int64_t pixel(int64_t w, int64_t token) const {
    const int64_t row = (w / columns() % rows() * window + token / window + roll_rows) % height;
    const int64_t column = (w % columns() * window + token % window + roll_columns) % width;
    return (w / (rows() * columns()) * height + row) * width + column;
  }
  // Row of the bias table.
  BRAID_ANYWHERE int64_t entry(int64_t query, int64_t key) const {
    return (query / window - key / window + window - 1) * (2 * window - 1) + query % window -
           key % window + window - 1;
  }
  // Tokens of window w see those of the same side.
  BRAID_ANYWHERE int side(int64_t w, int64_t token) const {
    const bool bottom = w / columns() % rows() + 1 == rows(),
               right = w % columns() + 1 == columns();
    return (bottom && token / window >= window - seam_rows ? 2 : 0) +
           (right && token % window >= window - seam_columns ? 1 : 0);
  }
  // Windows are dealt to so many parts, which sum the gradient of the table each for itself. Not
  // by the number of threads or processors: the sum is the same everywhere.
  BRAID_ANYWHERE int64_t parts() const {
    const int64_t most = 264 / heads < 1 ? 1 : 264 / heads;
    return windows() < most ? windows() : most;
  }
};

// edges: roll and seam, of rows and columns each.
inline WindowPlaces window_places(const at::Tensor& qkv, const at::Tensor& table, int64_t window,
                                  c10::IntArrayRef edges, double scale) {
  TORCH_CHECK(qkv.dim() == 4 && table.dim() == 2 && edges.size() == 4,
              "window_attention takes an image and a table");
  TORCH_CHECK(window > 0 && qkv.size(1) % window == 0 && qkv.size(2) % window == 0, "an image of ",
              qkv.sizes(), " has no whole windows of ", window);
  TORCH_CHECK(qkv.size(3) % (3 * table.size(1)) == 0, "qkv of ", qkv.sizes(), " is not for ",
              table.size(1), " heads");
  WindowPlaces places = {.batch = qkv.size(0),
                         .height = qkv.size(1),
                         .width = qkv.size(2),
                         .window = window,
                         .heads = table.size(1),
                         .head = qkv.size(3) / (3 * table.size(1))};
  places.roll_rows = edges[0];
  places.roll_columns = edges[1];
  places.seam_rows = edges[2];
  places.seam_columns = edges[3];
  places.scale = scale;
  TORCH_CHECK(table.size(0) == places.entries(), "a bias table of ", table.sizes(),
              " is not for windows of ", window);
  return places;
}

}  // namespace braid::kernels
