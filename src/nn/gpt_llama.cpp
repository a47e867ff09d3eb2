// SPDX-License-Identifier: BSD-3-Clause
#include "nn/gpt_llama.h"

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

LayerRow tied_head_row(int64_t width, int64_t vocabulary, int64_t tokens) {
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(width) *
                       static_cast<double>(vocabulary);
  return {.name = "lm_head",
          .kind = fmt::format("Linear {} -> {}, tied", width, vocabulary),
          .output = {1, tokens, vocabulary},
          .parameters = 0,
          .flops = flops};
}

}  // namespace braid::nn
