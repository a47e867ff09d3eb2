// SPDX-License-Identifier: BSD-3-Clause
// Linear layers with the activation before them, rotary positions, and products of 8-bit floats.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include "braid/kernels/activation.h"
#include "braid/kernels/fp8.h"
#include "braid/kernels/linear.h"
#include "braid/kernels/rotary.h"
#include "kernel_case.h"

namespace braid::bench {
namespace {

constexpr auto narrow_dtype = c10::kBFloat16;

c10::ScalarType held_dtype(const ModelShape& m) {
  return m.name == "llama_8l" ? c10::kBFloat16 : c10::kFloat;
}

double product_flops(int64_t rows, int64_t in, int64_t out) {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(in * out);
}

// Parameters as they are held, with their casts; braid's and autocast's way.
KernelCase qkv_case(const ModelShape& m, const KernelPlace& place) {
  const int64_t kv = m.head() * m.kv_heads;
  const at::Tensor x = leaf({m.rows(), m.width}, narrow_dtype, place.device);
  std::vector<kernels::LinearWeights> layers;
  std::vector<at::Tensor> leaves = {x};
  for (const int64_t out : {m.width, kv, kv}) {
    layers.push_back({leaf({out, m.width}, held_dtype(m), place.device)});
    leaves.push_back(layers.back().weight);
  }
  const double flops = product_flops(m.rows(), m.width, m.width + 2 * kv);
  return {.leaves = leaves,
          .ours = [=] { return kernels::linears(x, layers); },
          .aten =
              [=] {
                std::vector<at::Tensor> all;
                for (const auto& layer : layers)
                  all.push_back(at::linear(x, layer.weight.to(narrow_dtype)));
                return all;
              },
          .forward = {.flops = flops},
          .backward = {.flops = 2 * flops}};
}

KernelCase activated_case(const ModelShape& m, const KernelPlace& place) {
  const bool gated = m.name == "llama_8l";
  const at::Tensor h = leaf({m.rows(), m.hidden}, narrow_dtype, place.device),
                   up = gated ? leaf({m.rows(), m.hidden}, narrow_dtype, place.device)
                              : at::Tensor(),
                   weight = leaf({m.width, m.hidden}, held_dtype(m), place.device);
  const auto kind = gated ? kernels::Activation::swiglu : kernels::Activation::gelu;
  const double flops = product_flops(m.rows(), m.hidden, m.width);
  std::vector<at::Tensor> leaves = {h, weight};
  if (gated) leaves.push_back(up);
  return {.leaves = leaves,
          .ours = [=] { return kernels::linears({kind, h, up}, {{weight}}); },
          .aten =
              [=] {
                const at::Tensor a = gated ? at::silu(h) * up : at::gelu(h);
                return std::vector<at::Tensor>{at::linear(a, weight.to(narrow_dtype))};
              },
          .forward = {.flops = flops},
          .backward = {.flops = 2 * flops}};
}

// The layer before GPT's activation, with it; the weight is stored [in, out].
KernelCase linear_gelu_case(const ModelShape& m, const KernelPlace& place) {
  const at::Tensor x = random_tensor({m.rows(), m.width}, narrow_dtype, place.device),
                   weight = random_tensor({m.width, m.hidden}, narrow_dtype, place.device).t(),
                   bias = random_tensor({m.hidden}, narrow_dtype, place.device);
  return {.leaves = {},
          .ours =
              [=] {
                const auto h =
                    kernels::linear_to(x, {weight, bias}, kernels::Activation::gelu_tanh);
                return std::vector<at::Tensor>{h.x, h.value};
              },
          .aten =
              [=] {
                const at::Tensor h = at::linear(x, weight, bias);
                return std::vector<at::Tensor>{h, at::gelu(h, "tanh")};
              },
          .forward = {.flops = product_flops(m.rows(), m.width, m.hidden)}};
}

KernelCase activation_case(const ModelShape& m, const KernelPlace& place) {
  const bool gated = m.name == "llama_8l";
  const at::Tensor h = leaf({m.rows(), m.hidden}, narrow_dtype, place.device),
                   up = gated ? leaf({m.rows(), m.hidden}, narrow_dtype, place.device)
                              : at::Tensor();
  const auto kind = gated ? kernels::Activation::swiglu : kernels::Activation::gelu;
  std::vector<at::Tensor> leaves = {h};
  if (gated) leaves.push_back(up);
  const double one = bytes_of({h});
  return {.leaves = leaves,
          .ours = [=] { return std::vector<at::Tensor>{kernels::activated({kind, h, up})}; },
          .aten = [=] { return std::vector<at::Tensor>{gated ? at::silu(h) * up : at::gelu(h)}; },
          .forward = {.bytes = (gated ? 3 : 2) * one},
          .backward = {.bytes = (gated ? 5 : 3) * one}};
}

at::Tensor aten_turned(const at::Tensor& x, const kernels::Turn& turn) {
  const auto halves = x.to(c10::kFloat).chunk(2, -1);
  const at::Tensor cos = turn.cos.unsqueeze(1), sin = turn.sin.unsqueeze(1);
  return at::cat({halves[0] * cos - halves[1] * sin, halves[1] * cos + halves[0] * sin}, -1)
      .to(x.scalar_type());
}

KernelCase rotary_case(const ModelShape& m, const KernelPlace& place) {
  const at::Tensor q = leaf({m.batch, m.tokens, m.heads, m.head()}, narrow_dtype, place.device),
                   k = leaf({m.batch, m.tokens, m.kv_heads, m.head()}, narrow_dtype, place.device);
  const kernels::Turn turn = {random_tensor({m.tokens, m.head() / 2}, c10::kFloat, place.device),
                              random_tensor({m.tokens, m.head() / 2}, c10::kFloat, place.device)};
  const double bytes = 2 * bytes_of({q, k});
  return {
      .leaves = {q, k},
      .ours =
          [=] {
            const auto both = kernels::rotary(q, k, turn);
            return std::vector<at::Tensor>{both.first, both.second};
          },
      .aten = [=] { return std::vector<at::Tensor>{aten_turned(q, turn), aten_turned(k, turn)}; },
      .forward = {.bytes = bytes},
      .backward = {.bytes = bytes}};
}

// One product with codes that are there, and the coding of its input.
KernelCase coded_product_case(const ModelShape& m, const KernelPlace& place) {
  const at::Tensor x = random_tensor({m.rows(), m.width}, narrow_dtype, place.device),
                   weight = random_tensor({m.hidden, m.width}, narrow_dtype, place.device);
  const kernels::Coded a = kernels::coded({x}), b = kernels::coded({weight});
  return {.leaves = {},
          .ours =
              [=] {
                return std::vector<at::Tensor>{
                    kernels::coded_product({a.plain, b.plain.t(), a.scale, b.scale})};
              },
          .aten = [=] { return std::vector<at::Tensor>{at::linear(x, weight)}; },
          .forward = {.flops = product_flops(m.rows(), m.width, m.hidden)}};
}

KernelCase coding_case(const ModelShape& m, const KernelPlace& place) {
  const at::Tensor x = random_tensor({m.rows(), m.hidden}, narrow_dtype, place.device);
  return {.leaves = {},
          .ours =
              [=] {
                const kernels::Coded both = kernels::coded({x}, {.turned = true});
                return std::vector<at::Tensor>{both.plain};
              },
          .forward = {.bytes = 3 * bytes_of({x})}};  // twice in, two copies of half the size out
}

}  // namespace

std::vector<NamedCase> linear_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  for (const ModelShape& m : model_shapes(place)) {
    all.push_back({"linears qkv", m.name, [=] { return qkv_case(m, place); }});
    all.push_back({"linears activated", m.name, [=] { return activated_case(m, place); }});
    all.push_back({"activation", m.name, [=] { return activation_case(m, place); }});
    if (m.name == "gpt")
      all.push_back({"linear gelu", m.name, [=] { return linear_gelu_case(m, place); }});
    if (m.name != "llama_8l") continue;
    all.push_back({"rotary", m.name, [=] { return rotary_case(m, place); }});
    all.push_back({"fp8 product", m.name, [=] { return coded_product_case(m, place); }});
    all.push_back({"fp8 coding", m.name, [=] { return coding_case(m, place); }});
  }
  return all;
}

}  // namespace braid::bench
