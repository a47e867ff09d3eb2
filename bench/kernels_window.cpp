// SPDX-License-Identifier: BSD-3-Clause
// Attention in the windows of SwinIR's images.
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "braid/kernels/window_attention.h"
#include "kernel_case.h"

namespace braid::bench {
namespace {

constexpr int64_t window = 8;

// Roll, windows, scores, bias, softmax and back; without the mask of shifted windows.
at::Tensor aten_windows(const at::Tensor& qkv, const at::Tensor& bias, int64_t heads,
                        bool shifted) {
  const int64_t batch = qkv.size(0), rows = qkv.size(1) / window, columns = qkv.size(2) / window;
  const at::Tensor x = shifted ? qkv.roll({-4, -4}, {1, 2}) : qkv;
  const at::Tensor parts = x.reshape({batch, rows, window, columns, window, -1})
                               .permute({0, 1, 3, 2, 4, 5})
                               .reshape({batch * rows * columns, window * window, 3, heads, -1})
                               .permute({2, 0, 3, 1, 4});
  const at::Tensor scores = at::matmul(parts[0] * 0.18, parts[1].transpose(-2, -1)) + bias;
  const at::Tensor y = at::matmul(at::softmax(scores, -1), parts[2]).transpose(1, 2);
  const at::Tensor image = y.reshape({batch, rows, columns, window, window, -1})
                               .permute({0, 1, 3, 2, 4, 5})
                               .reshape({batch, rows * window, columns * window, -1});
  return shifted ? image.roll({4, 4}, {1, 2}) : image;
}

KernelCase window_case(const ModelShape& m, const KernelPlace& place, bool shifted) {
  const int64_t side = m.tokens == 4096 ? 64 : window;
  const at::Tensor qkv = leaf({m.batch, side, side, 3 * m.width}, c10::kBFloat16, place.device),
                   table = leaf({(2 * window - 1) * (2 * window - 1), m.heads}, c10::kFloat,
                                place.device);
  const at::Tensor bias =
      random_tensor({m.heads, window * window, window * window}, c10::kBFloat16, place.device);
  const double scale = 1 / std::sqrt(static_cast<double>(m.head()));
  const kernels::WindowOptions options =
      shifted ? kernels::shifted_windows(window, scale)
              : kernels::WindowOptions{.window = window, .scale = scale};
  const double bytes = bytes_of({qkv});
  const int64_t heads = m.heads;
  return {
      .leaves = {qkv},
      .ours =
          [=] { return std::vector<at::Tensor>{kernels::window_attention(qkv, table, options)}; },
      .aten = [=] { return std::vector<at::Tensor>{aten_windows(qkv, bias, heads, shifted)}; },
      .forward = {.bytes = bytes * 4 / 3},
      .backward = {.bytes = bytes * 7 / 3}};
}

}  // namespace

std::vector<NamedCase> window_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  for (const ModelShape& m : model_shapes(place)) {
    if (m.name != "swinir") continue;
    all.push_back({"window attention", m.name, [=] { return window_case(m, place, false); }});
    all.push_back(
        {"window attention shifted", m.name, [=] { return window_case(m, place, true); }});
  }
  return all;
}

}  // namespace braid::bench
