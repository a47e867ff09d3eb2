// SPDX-License-Identifier: BSD-3-Clause
// Llama against the transformers package (tests/golden/gpt_llama.py), its sizes and its rotary
// frequencies.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "braid/nn/generate.h"
#include "braid/nn/options.h"
#include "nn/golden.h"
#include "nn/rotary.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

constexpr LlamaOptions tiny_llama = {.vocabulary = 31,
                                     .sequence = 256,
                                     .layers = 2,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .width = 32,
                                     .hidden = 40,
                                     .rope_theta = 1000,
                                     .rope_original = 128};

LlamaOptions tied_llama() {
  LlamaOptions options = tiny_llama;
  options.tied = true;
  options.rope_theta = 500000;
  options.rope_factor = 1;
  return options;
}

std::unique_ptr<Model> llama(const LlamaOptions& options, std::string_view name) {
  return make_llama(options, {.seed = 3, .precision = precision(name)});
}

TEST(Llama, HasLogitsAndGradientsOfTransformers) {
  for (bool tied : {true, false}) {
    const auto golden = test::read_golden(tied ? "llama_tied" : "llama_scaled");
    const auto model = llama(tied ? tied_llama() : tiny_llama, "fp64");
    test::load_golden(*model, golden);
    test::expect_golden_pass(*model, golden, 1e-10);
  }
}

TEST(Llama, HasLogitsOfTransformersInSinglePrecision) {
  for (bool tied : {true, false}) {
    const auto golden = test::read_golden(tied ? "llama_tied" : "llama_scaled");
    const auto model = llama(tied ? tied_llama() : tiny_llama, "fp32");
    test::load_golden(*model, golden);
    EXPECT_LT(test::distance(model->forward(golden.at("input"), {}), golden.at("logits_fp32")),
              1e-5);
  }
}

TEST(Llama, ComputesInHalfPrecisionAndKeepsFullWeights) {
  test::expect_golden_half_pass(*llama(tiny_llama, "bf16"), test::read_golden("llama_scaled"));
}

TEST(Llama, HasTheSizesOfLlama3) {
  const LlamaOptions small;  // the defaults are 8B
  LlamaOptions middle = {.layers = 80, .heads = 64, .width = 8192, .hidden = 28672};
  LlamaOptions large = {.layers = 126, .heads = 128, .width = 16384, .hidden = 53248};
  EXPECT_EQ(make_llama(small, {.device = c10::kMeta})->parameters(), 8'030'261'248);
  EXPECT_EQ(make_llama(middle, {.device = c10::kMeta})->parameters(), 70'553'706'496);
  EXPECT_EQ(make_llama(large, {.device = c10::kMeta})->parameters(), 405'853'388'800);
}

TEST(Llama, CountsOperationsAsTheFormula) {
  const auto model = llama(tiny_llama, "fp32");
  const double tokens = 256, width = 32, hidden = 40, layers = 2, vocabulary = 31;
  const double attention = 2 * width * width * (1 + 2.0 / 4);  // 2 h^2 (1 + kv / a)
  const double matmuls = layers * (attention + 3 * width * hidden) + width * vocabulary;
  EXPECT_EQ(model->flops_forward(), 2 * tokens * matmuls + layers * 4 * tokens * tokens * width);
  test::expect_rows_hold_all_parameters(*model);
}

// The published rule in its three cases.
double scaled_frequency(double plain, const LlamaOptions& o) {
  const double wave = 2 * std::numbers::pi / plain, original = static_cast<double>(o.rope_original);
  if (wave < original / o.rope_high) return plain;
  if (wave > original / o.rope_low) return plain / o.rope_factor;
  const double smooth = (original / wave - o.rope_low) / (o.rope_high - o.rope_low);
  return (1 - smooth) * plain / o.rope_factor + smooth * plain;
}

TEST(Rotary, SlowsLongWavesByTheRuleOfLlama3) {
  const LlamaOptions o;  // 8B: heads of 128
  const at::Tensor got = rotary_frequencies(o, at::TensorOptions().dtype(c10::kDouble));
  ASSERT_EQ(got.numel(), 64);
  int kept = 0, slowed = 0, between = 0;
  for (int64_t i = 0; i < 64; ++i) {
    const double plain = std::pow(o.rope_theta, -static_cast<double>(i) / 64);
    const double wanted = scaled_frequency(plain, o);
    EXPECT_NEAR(got[i].item<double>() / wanted, 1, 1e-12) << i;
    (wanted == plain ? kept : wanted == plain / 8 ? slowed : between) += 1;
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(slowed, 20);
  EXPECT_GT(between, 3);
}

TEST(Rotary, KeepsItsTablesForALengthAndDtype) {
  RotaryTables tables(tiny_llama);
  const at::Tensor first = tables.at(8, c10::kCPU, c10::kFloat).cos;
  EXPECT_TRUE(first.is_same(tables.at(8, c10::kCPU, c10::kFloat).cos));
  EXPECT_EQ(tables.at(9, c10::kCPU, c10::kFloat).cos.size(0), 9);
  EXPECT_EQ(tables.at(9, c10::kCPU, c10::kDouble).sin.scalar_type(), c10::kDouble);
}

TEST(Llama, IsCausal) {
  const auto golden = test::read_golden("llama_scaled");
  const auto model = llama(tiny_llama, "fp64");
  test::load_golden(*model, golden);
  at::Tensor changed = golden.at("input").clone();
  changed.select(1, 8).add_(1).remainder_(31);
  const at::Tensor before = model->forward(golden.at("input"), {}),
                   after = model->forward(changed, {});
  EXPECT_TRUE(before.narrow(1, 0, 8).equal(after.narrow(1, 0, 8)));
  EXPECT_FALSE(before.narrow(1, 8, 4).equal(after.narrow(1, 8, 4)));
}

TEST(Llama, MakesText) {
  const auto model = llama(tiny_llama, "fp32");
  const auto text = generate(*model, {5, 6}, {.tokens = 10, .top_k = 4, .seed = 1});
  EXPECT_EQ(text.size(), 12u);
  EXPECT_EQ(text, generate(*model, {5, 6}, {.tokens = 10, .top_k = 4, .seed = 1}));
}

TEST(Llama, SaysWhatIsWrongWithItsSizes) {
  LlamaOptions odd = tiny_llama, heads = tiny_llama, bands = tiny_llama;
  odd.width = 36;
  heads.kv_heads = 3;
  bands.rope_high = 1;
  const auto wrong = [](const LlamaOptions& o) {
    return test::error_of([&] { llama(o, "fp32"); });
  };
  EXPECT_TRUE(test::contains(wrong(odd), "choose model.width as a multiple of 8"));
  EXPECT_TRUE(test::contains(wrong(heads), "model.kv_heads = 3 does not divide model.heads = 4"));
  EXPECT_TRUE(test::contains(wrong(bands), "model.rope_high = 1 is not above model.rope_low = 1"));
}

}  // namespace
}  // namespace braid::nn
