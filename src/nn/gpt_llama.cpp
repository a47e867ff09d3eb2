// SPDX-License-Identifier: BSD-3-Clause
#include "nn/gpt_llama.h"

#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/error.h"

namespace braid::nn {

void check_tokens(const at::Tensor& tokens, int64_t longest) {
  if (tokens.dim() != 2 || !c10::isIntegralType(tokens.scalar_type(), false))
    throw DataError({
        .what = fmt::format("the input has shape [{}] and dtype {}",
                            fmt::join(tokens.sizes(), ", "), c10::toString(tokens.scalar_type())),
        .why = "a language model reads token numbers: integers of shape [batch, sequence]",
        .fix = "give int64 tokens, for example from data.source = tokens",
    });
  if (tokens.size(1) > longest)
    throw DataError({
        .what = fmt::format("the input has {} tokens a sample, model.sequence is {}",
                            tokens.size(1), longest),
        .why = "positions beyond model.sequence have no meaning to the model",
        .fix = fmt::format("set model.sequence to {} or shorten the samples", tokens.size(1)),
    });
}

at::Tensor token_scores(const Linear* head, const Embedding& embedding, const at::Tensor& x) {
  if (head != nullptr) return head->forward(x);
  const auto compute = embedding.scope().build.precision.compute;
  return at::linear(x.to(compute), embedding.weight.to(compute));
}

LayerRow head_row(const Linear* head, const Embedding& embedding, int64_t tokens) {
  if (head != nullptr) return head->row({tokens});
  const int64_t vocabulary = embedding.weight.size(0), width = embedding.weight.size(1);
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(width) *
                       static_cast<double>(vocabulary);
  return {.name = "lm_head",
          .kind = fmt::format("Linear {} -> {}, tied", width, vocabulary),
          .output = {1, tokens, vocabulary},
          .parameters = 0,
          .flops = flops};
}

}  // namespace braid::nn
