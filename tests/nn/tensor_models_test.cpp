// SPDX-License-Identifier: BSD-3-Clause
// GPT and Llama over the ranks of tensor: losses, scores and all gradients are those of one
// process, to 1e-12 in fp64, whatever splits unevenly.
#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include <mutex>

#include "braid/nn/generate.h"
#include "nn/tensor_spread.h"
#include "support/expect.h"

namespace braid::nn::tensor_models {  // names of its own, also in a unity build
namespace {

// 29 small_entries and 10 tokens divide by none of 2 (tokens do), 3 and 4.
constexpr int64_t small_entries = 29, small_length = 10;
constexpr GptOptions small_gpt = {
    .vocabulary = small_entries, .sequence = 12, .layers = 2, .heads = 12, .width = 24};
constexpr LlamaOptions small_llama = {.vocabulary = small_entries,
                                      .sequence = 12,
                                      .layers = 2,
                                      .heads = 12,
                                      .kv_heads = 12,
                                      .width = 48,
                                      .hidden = 50,
                                      .rope_factor = 1};

test::MakeModel gpt_of(GptOptions o) {
  return [o](const Build& build) { return make_gpt(o, build); };
}
test::MakeModel llama_of(LlamaOptions o) {
  return [o](const Build& build) { return make_llama(o, build); };
}

void expect_all_spreads(const test::MakeModel& make, const std::vector<int>& ranks) {
  for (const test::Spread& spread : test::all_spreads(ranks)) {
    SCOPED_TRACE(test::name_of(spread));
    test::expect_as_one(make, test::texts(2, small_length, small_entries), spread.ranks,
                        [&](const comm::Group& world) { return layout_of(spread, world); });
  }
}

TEST(TensorModels, GptWithATiedHeadIsThatOfOneProcess) {
  expect_all_spreads(gpt_of(small_gpt), {2, 3, 4});
}

TEST(TensorModels, GptWithDropoutAndAnOwnHeadIsThatOfOneProcess) {
  GptOptions o = small_gpt;
  o.dropout = 0.2;
  o.tied = false;
  expect_all_spreads(gpt_of(o), {2, 3, 4});
}

TEST(TensorModels, LlamaIsThatOfOneProcess) {
  expect_all_spreads(llama_of(small_llama), {2, 3, 4});
}

TEST(TensorModels, LlamaWithSharedHeadsOfKeysIsThatOfOneProcess) {
  for (const int64_t kv_heads : {1, 2, 4}) {
    LlamaOptions o = small_llama;
    o.kv_heads = kv_heads;
    o.tied = kv_heads == 2;
    const test::Spread sequence{.ranks = 4, .sequence = true};
    for (const test::Spread& spread : {test::Spread{.ranks = 4}, sequence, test::Spread{2}}) {
      SCOPED_TRACE(test::name_of(spread) + ", heads of keys " + std::to_string(kv_heads));
      test::expect_as_one(llama_of(o), test::texts(2, small_length, small_entries), spread.ranks,
                          [&](const comm::Group& world) { return layout_of(spread, world); });
    }
  }
}

// Texts begin with a token: most ranks have none between the split regions then.
TEST(TensorModels, WriteTheTextOfOneProcess) {
  const GenerateOptions text = {.tokens = 8, .sequence = 12};
  const auto one = make_gpt(small_gpt, test::build_on({}));
  const std::vector<int64_t> expected = generate(*one, {5}, text);
  for (const bool sequence : {false, true})
    test::on_ranks(3, [&](comm::Group world) {
      const auto model =
          make_gpt(small_gpt, test::build_on({.tensor = world, .sequence = sequence}));
      EXPECT_EQ(generate(*model, {5}, text), expected);
    });
}

TEST(TensorModels, EachRankHoldsItsShare) {
  const int64_t whole = make_llama(small_llama, test::build_on({}))->parameters();
  std::mutex mutex;
  int64_t counted = 0;
  test::on_ranks(3, [&](comm::Group world) {
    const auto model = make_llama(small_llama, test::build_on({.tensor = world}));
    const std::lock_guard lock(mutex);
    for (const Param& param : model->params()) {
      const bool norm = param.name.find("norm") != std::string::npos;
      EXPECT_EQ(param.is_whole(), norm) << param.name;
      EXPECT_EQ(param.repeated, norm && world.rank() > 0) << param.name;
      EXPECT_FALSE(param.tensor_partial);
      if (!param.repeated) counted += param.tensor.numel();
    }
  });
  EXPECT_EQ(counted, whole);
}

TEST(TensorModels, NormsHaveAPartOfTheirGradientWhereTokensAreShared) {
  test::on_ranks(2, [](comm::Group world) {
    const auto model = make_gpt(small_gpt, test::build_on({.tensor = world, .sequence = true}));
    for (const Param& param : model->params()) EXPECT_EQ(param.tensor_partial, param.is_whole());
  });
}

TEST(TensorModels, HeadsThatDoNotDivideAreRefused) {
  const comm::Group five(comm::dry(0, 5)), eight(comm::dry(0, 8));
  const std::string gpt =
      test::error_of([&] { make_gpt(small_gpt, test::build_on({.tensor = five})); });
  EXPECT_TRUE(test::contains(gpt, "model.heads = 12 cannot be split over mesh.tensor = 5"));
  EXPECT_TRUE(test::contains(gpt, "choose mesh.tensor as a divisor of model.heads"));
  LlamaOptions o = small_llama;
  o.heads = 24;
  o.kv_heads = 3;
  const std::string llama =
      test::error_of([&] { make_llama(o, test::build_on({.tensor = eight})); });
  EXPECT_TRUE(test::contains(llama, "model.kv_heads = 3 cannot be split over mesh.tensor = 8"));
}

}  // namespace
}  // namespace braid::nn::tensor_models
