// SPDX-License-Identifier: BSD-3-Clause
// GPT-2 against the transformers package (tests/golden/gpt_llama.py), its sizes, and text made with
// it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "braid/nn/generate.h"
#include "braid/nn/options.h"
#include "nn/golden.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

constexpr GptOptions tiny_gpt = {
    .vocabulary = 29, .sequence = 16, .layers = 2, .heads = 3, .width = 24};

std::unique_ptr<Model> gpt(GptOptions options, std::string_view name) {
  return make_gpt(options, {.seed = 3, .precision = precision(name)});
}

TEST(Gpt, HasLogitsAndGradientsOfTransformers) {
  for (bool tied : {true, false}) {
    GptOptions options = tiny_gpt;
    options.tied = tied;
    const auto golden = test::read_golden(tied ? "gpt_tied" : "gpt_untied");
    const auto model = gpt(options, "fp64");
    test::load_golden(*model, golden);
    test::expect_golden_pass(*model, golden, 1e-10);
  }
}

TEST(Gpt, HasLogitsOfTransformersInSinglePrecision) {
  const auto golden = test::read_golden("gpt_tied");
  const auto model = gpt(tiny_gpt, "fp32");
  test::load_golden(*model, golden);
  EXPECT_LT(test::distance(model->forward(golden.at("input"), {}), golden.at("logits_fp32")), 1e-5);
  test::expect_golden_pass(*model, golden, 1e-4);
}

TEST(Gpt, ComputesInHalfPrecisionAndKeepsFullWeights) {
  test::expect_golden_half_pass(*gpt(tiny_gpt, "bf16"), test::read_golden("gpt_tied"));
}

TEST(Gpt, HasTheSizesOfGpt2) {
  struct Size {
    int64_t layers, heads, width, parameters;
  };
  for (const Size& size : {Size{12, 12, 768, 124'439'808}, Size{24, 16, 1024, 354'823'168},
                           Size{36, 20, 1280, 774'030'080}, Size{48, 25, 1600, 1'557'611'200}}) {
    GptOptions options = {.layers = size.layers, .heads = size.heads, .width = size.width};
    EXPECT_EQ(make_gpt(options, {.device = c10::kMeta})->parameters(), size.parameters);
    options.tied = false;
    EXPECT_EQ(make_gpt(options, {.device = c10::kMeta})->parameters(),
              size.parameters + 50257 * size.width);
  }
}

TEST(Gpt, ReproducesTheParameterFormula) {
  const GptOptions o = {
      .vocabulary = 51200, .sequence = 2048, .layers = 24, .heads = 24, .width = 2304};
  // P = 12 L h^2 (1 + 13/(12h) + (V+s)/(12 L h)), and the last norm's 2h on top
  const int64_t h = o.width,
                wanted = o.layers * (12 * h * h + 13 * h) + (o.vocabulary + o.sequence) * h + 2 * h;
  EXPECT_EQ(make_gpt(o, {.device = c10::kMeta})->parameters(), wanted);
}

TEST(Gpt, CountsOperationsAsTheFormula) {
  for (bool tied : {true, false}) {
    GptOptions options = tiny_gpt;
    options.tied = tied;
    const auto model = gpt(options, "fp32");
    const double tokens = 16, width = 24, layers = 2, vocabulary = 29;
    const double matmuls = layers * 12 * width * width + width * vocabulary;
    EXPECT_EQ(model->flops_forward(), 2 * tokens * matmuls + layers * 4 * tokens * tokens * width);
    test::expect_rows_hold_all_parameters(*model);
    EXPECT_EQ(model->layers().back().name, "lm_head");
  }
}

TEST(Gpt, StartsWithTheDistributionOfTransformers) {
  GptOptions options = tiny_gpt;
  options.width = 192;
  const auto model = gpt(options, "fp32");
  for (const Param& param : model->params()) {
    const at::Tensor& p = param.tensor;
    if (p.dim() == 1) {
      EXPECT_EQ(p.min().item<double>(), param.name.ends_with("bias") ? 0 : 1) << param.name;
      EXPECT_EQ(p.max().item<double>(), param.name.ends_with("bias") ? 0 : 1) << param.name;
      continue;
    }
    const double std =
        param.name.ends_with("c_proj.weight") ? 0.02 / 2 : 0.02;  // sqrt(2 * 2 layers) = 2
    const double error = 5 / std::sqrt(2.0 * static_cast<double>(p.numel()));
    EXPECT_NEAR(p.std().item<double>() / std, 1, error) << param.name;
    EXPECT_NEAR(p.mean().item<double>(), 0, 5 * std / std::sqrt(p.numel())) << param.name;
  }
}

TEST(Gpt, DropsByCounterAndOnlyInTraining) {
  GptOptions options = tiny_gpt;
  options.dropout = 0.5;
  const auto model = gpt(options, "fp64"), plain = gpt(tiny_gpt, "fp64");
  const at::Tensor tokens = at::arange(32).reshape({4, 8}).remainder(29);
  const Pass pass = {.training = true, .seed = 9, .step = 4};
  EXPECT_TRUE(model->forward(tokens, {}).equal(plain->forward(tokens, {})));
  const at::Tensor whole = model->forward(tokens, pass);
  EXPECT_TRUE(whole.equal(model->forward(tokens, pass)));
  EXPECT_FALSE(whole.equal(model->forward(tokens, {.training = true, .seed = 9, .step = 5})));
  const Pass second = {
      .training = true, .seed = 9, .step = 4, .first_sample = 2};  // a rank with the second half
  EXPECT_LT(test::distance(model->forward(tokens.narrow(0, 2, 2), second), whole.narrow(0, 2, 2)),
            1e-13);
}

TEST(Gpt, SaysWhatIsWrongWithItsSizesAndInput) {
  GptOptions options = tiny_gpt;
  options.heads = 5;
  EXPECT_TRUE(test::contains(test::error_of([&] { gpt(options, "fp32"); }),
                             "model.heads = 5 does not divide model.width = 24"));
  const auto model = gpt(tiny_gpt, "fp32");
  const auto wrong = [&](const at::Tensor& x) {
    return test::error_of([&] { model->forward(x, {}); });
  };
  EXPECT_TRUE(test::contains(wrong(at::zeros({1, 17}, c10::kLong)), "set model.sequence to 17"));
  EXPECT_TRUE(
      test::contains(wrong(at::zeros({2, 3}, c10::kFloat)), "integers of shape [batch, sequence]"));
}

TEST(Generate, WithoutTemperatureTakesTheLikeliestToken) {
  const auto golden = test::read_golden("gpt_tied");
  const auto model = gpt(tiny_gpt, "fp64");
  test::load_golden(*model, golden);
  const auto text = generate(*model, {1, 2, 3}, {.tokens = 20, .temperature = 0, .sequence = 16});
  ASSERT_EQ(text.size(), 23u);
  for (size_t n = 3; n < text.size(); ++n) {
    const size_t first = n > 16 ? n - 16 : 0;  // the model sees no more than 16
    std::vector<int64_t> seen(text.begin() + first, text.begin() + n);
    const at::Tensor tokens = at::from_blob(seen.data(), {1, int64_t(seen.size())}, c10::kLong);
    EXPECT_EQ(text[n], model->forward(tokens, {}).select(1, -1).argmax().item<int64_t>()) << n;
  }
  EXPECT_EQ(text, generate(*model, {1, 2, 3},
                           {.tokens = 20, .temperature = 5, .top_k = 1, .sequence = 16}));
}

TEST(Generate, IsAFunctionOfTheSeed) {
  const auto model = gpt(tiny_gpt, "fp32");  // fresh weights: nearly uniform scores
  const GenerateOptions one = {.tokens = 40, .seed = 1, .sequence = 16};
  GenerateOptions two = one;
  two.seed = 2;
  const auto text = generate(*model, {0}, one);
  EXPECT_EQ(text, generate(*model, {0}, one));
  EXPECT_NE(text, generate(*model, {0}, two));
  EXPECT_GT(std::set<int64_t>(text.begin(), text.end()).size(), 15u);
  for (int64_t token : text) EXPECT_TRUE(token >= 0 && token < 29);
}

TEST(Generate, SaysWhatIsWrong) {
  const auto model = gpt(tiny_gpt, "fp32");
  EXPECT_TRUE(
      test::contains(test::error_of([&] { generate(*model, {}); }), "the prompt holds no token"));
  EXPECT_TRUE(test::contains(test::error_of([&] { generate(*model, {1}, {.temperature = -1}); }),
                             "temperature = -1"));
}

}  // namespace
}  // namespace braid::nn
