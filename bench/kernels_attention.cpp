// SPDX-License-Identifier: BSD-3-Clause
// Attention as the models call it: heads are strided parts of [batch, tokens, heads, head width].
#include <ATen/ops/scaled_dot_product_attention.h>

#include "braid/kernels/attention.h"
#include "kernel_case.h"

namespace braid::bench {
namespace {

KernelCase attention_case(const ModelShape& m, const KernelPlace& place) {
  const auto in_heads = [&](int64_t heads) {
    return leaf({m.batch, m.tokens, heads, m.head()}, c10::kBFloat16, place.device);
  };
  const at::Tensor q = in_heads(m.heads), k = in_heads(m.kv_heads), v = in_heads(m.kv_heads);
  // Causal masks count half, backward 2.5 times forward.
  const double pairs = static_cast<double>(m.rows()) * static_cast<double>(m.tokens);
  const double flops = 4 * pairs * static_cast<double>(m.width) / (m.causal ? 2 : 1);
  const bool causal = m.causal, grouped = m.kv_heads != m.heads;
  return {.leaves = {q, k, v},
          .ours =
              [=] {
                return std::vector<at::Tensor>{kernels::attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {.causal = causal})};
              },
          .aten =
              [=] {
                return std::vector<at::Tensor>{at::scaled_dot_product_attention(
                    q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), {}, 0.0, causal,
                    std::nullopt, grouped)};
              },
          .forward = {.flops = flops},
          .backward = {.flops = 2.5 * flops}};
}

}  // namespace

std::vector<NamedCase> attention_cases(const KernelPlace& place) {
  std::vector<NamedCase> all;
  for (const ModelShape& m : model_shapes(place))
    if (m.name != "swinir")
      all.push_back({"attention", m.name, [=] { return attention_case(m, place); }});
  return all;
}

}  // namespace braid::bench
