// SPDX-License-Identifier: BSD-3-Clause
// Floors of the chip (a copy, a large product), and the products of the models.
#include <ATen/ops/empty_like.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>

#include "kernel_case.h"

namespace braid::bench {
namespace {

constexpr auto product_dtype = c10::kBFloat16;

KernelCase copy_case(const KernelPlace& place) {
  const at::Tensor from =
      random_tensor({(int64_t{1} << 29) / place.shrink}, product_dtype, place.device);
  const at::Tensor to = at::empty_like(from);
  return {.leaves = {},
          .ours = [=] { return std::vector<at::Tensor>{to.copy_(from)}; },
          .forward = {.bytes = 2 * bytes_of({from})}};
}

KernelCase square_case(const KernelPlace& place) {
  const int64_t n = 8192 / place.shrink;
  const at::Tensor a = random_tensor({n, n}, product_dtype, place.device),
                   b = random_tensor({n, n}, product_dtype, place.device);
  const double side = static_cast<double>(n);
  const auto product = [=] { return std::vector<at::Tensor>{at::matmul(a, b.t())}; };
  return {
      .leaves = {}, .ours = product, .aten = product, .forward = {.flops = 2 * side * side * side}};
}

struct ProductSizes {
  int64_t rows, in, out;
};

KernelCase linear_case(const ProductSizes& layer, const KernelPlace& place) {
  const at::Tensor x = leaf({layer.rows, layer.in}, product_dtype, place.device),
                   weight = leaf({layer.out, layer.in}, product_dtype, place.device);
  const auto product = [=] { return std::vector<at::Tensor>{at::linear(x, weight)}; };
  const double flops =
      2.0 * static_cast<double>(layer.rows) * static_cast<double>(layer.in * layer.out);
  return {.leaves = {x, weight},
          .ours = product,
          .aten = product,
          .forward = {.flops = flops},
          .backward = {.flops = 2 * flops}};
}

}  // namespace

std::vector<NamedCase> product_cases(const KernelPlace& place) {
  std::vector<NamedCase> all = {{"copy", "512 Mi of bf16", [=] { return copy_case(place); }},
                                {"product", "8192^3", [=] { return square_case(place); }}};
  const auto add = [&](const std::string& op, const ModelShape& model, int64_t in, int64_t out) {
    const ProductSizes layer = {model.rows(), in, out};
    all.push_back({op, model.name, [=] { return linear_case(layer, place); }});
  };
  for (const ModelShape& m : model_shapes(place)) {
    add("product qkv", m, m.width, m.width + 2 * m.head() * m.kv_heads);
    add("product proj", m, m.width, m.width);
    add("product fc1", m, m.width, m.name == "llama_8l" ? 2 * m.hidden : m.hidden);
    add("product fc2", m, m.hidden, m.width);
    if (m.vocabulary > 0) add("product head", m, m.width, m.vocabulary);
  }
  return all;
}

}  // namespace braid::bench
