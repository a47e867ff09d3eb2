// SPDX-License-Identifier: BSD-3-Clause
// GPT and Llama whose tokens are spread over the ranks of context, alone and with tensor: as on one
// process.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "nn/tensor_spread.h"

namespace braid::nn::tensor_context {  // names of its own, also in a unity build
namespace {

using parallel::ContextMethod;

constexpr int64_t context_entries = 29, context_length = 11;  // divides by no number of ranks
const std::vector<ContextMethod> context_methods = {ContextMethod::gather, ContextMethod::ring,
                                                    ContextMethod::all_to_all};

test::MakeModel context_gpt_of(double dropout) {
  return [=](const Build& build) {
    return make_gpt({.vocabulary = context_entries,
                     .sequence = context_length,
                     .layers = 2,
                     .heads = 4,
                     .width = 16,
                     .dropout = dropout},
                    build);
  };
}

std::unique_ptr<Model> context_llama_of(const Build& build) {
  return make_llama({.vocabulary = context_entries,
                     .sequence = context_length,
                     .layers = 2,
                     .heads = 4,
                     .kv_heads = 2,
                     .width = 16,
                     .hidden = 21},
                    build);
}

std::vector<test::MakeModel> models() {
  return {context_gpt_of(0), context_gpt_of(0.2), context_llama_of};
}

TEST(ContextModels, TokensOverRanksAreThoseOfOneProcess) {
  for (const ContextMethod method : context_methods)
    for (const int ranks : {2, 3})
      for (size_t i = 0; i < models().size(); ++i) {
        if (method == ContextMethod::all_to_all && ranks == 3) continue;  // 4 heads
        SCOPED_TRACE("model " + std::to_string(i) + ", method " +
                     std::to_string(static_cast<int>(method)) + ", ranks " + std::to_string(ranks));
        test::expect_as_one(
            models()[i], test::texts(2, context_length, context_entries), ranks,
            [&](const comm::Group& world) { return Layout{.context = world, .method = method}; });
      }
}

TEST(ContextModels, TokensAndLayersOverRanksAreThoseOfOneProcess) {
  for (const ContextMethod method : context_methods)
    for (const bool sequence : {false, true})
      for (size_t i = 0; i < models().size(); ++i) {
        if (method == ContextMethod::all_to_all && i == 2) continue;  // one head of keys a rank
        SCOPED_TRACE("model " + std::to_string(i) + ", method " +
                     std::to_string(static_cast<int>(method)) + ", sequence " +
                     std::to_string(sequence));
        test::expect_as_one(
            models()[i], test::texts(2, context_length, context_entries), 4,
            [&](const comm::Group& world) {
              const int row = world.rank() / 2, column = world.rank() % 2;
              return Layout{
                  .tensor = world.split({2 * row, 2 * row + 1}, "tensor" + std::to_string(row)),
                  .sequence = sequence,
                  .context = world.split({column, 2 + column}, "context" + std::to_string(column)),
                  .method = method};
            });
      }
}

}  // namespace
}  // namespace braid::nn::tensor_context
