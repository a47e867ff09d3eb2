// SPDX-License-Identifier: BSD-3-Clause
// SwinIR against an own PyTorch script (tests/golden/make_swinir.py), counts, names, index and mask
// check values.
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/core/rng.h"
#include "braid/nn/options.h"
#include "nn/fields.h"
#include "nn/window.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

SwinirOptions tiny_swinir(Upsampler upsampler = Upsampler::pixelshuffle, int64_t scale = 2,
                          Residual residual = Residual::conv1) {
  return {.image = {8, 12},
          .channels = 2,
          .scale = scale,
          .window = 4,
          .width = 8,
          .depths = {2, 2},
          .heads = {2, 2},
          .upsampler = upsampler,
          .residual = residual,
          .features = 4,
          .mean = {6.3024, 278.3945},
          .std = {3.7376, 21.0588}};
}

struct SwinCase {
  const char* file;
  SwinirOptions options;
};

std::vector<SwinCase> swin_cases() {
  return {{"swinir_shuffle2", tiny_swinir()},
          {"swinir_shuffle3", tiny_swinir(Upsampler::pixelshuffle, 3, Residual::conv3)},
          {"swinir_shuffle4", tiny_swinir(Upsampler::pixelshuffle, 4)},
          {"swinir_direct", tiny_swinir(Upsampler::pixelshuffledirect)},
          {"swinir_nearest2", tiny_swinir(Upsampler::nearest_conv)},
          {"swinir_nearest4", tiny_swinir(Upsampler::nearest_conv, 4, Residual::conv3)},
          {"swinir_none", tiny_swinir(Upsampler::none, 1, Residual::conv3)}};
}

TEST(Swinir, HasTheOutputAndGradientsOfPyTorch) {
  for (const SwinCase& item : swin_cases())
    for (const auto& [policy, tolerance] : {std::pair("fp64", 1e-10), std::pair("fp32", 1e-4)}) {
      SCOPED_TRACE(fmt::format("{} {}", item.file, policy));
      const auto model = make_swinir(item.options, {.precision = precision(policy)});
      test::expect_golden_fields(*model, test::read_golden(item.file), Loss::l1, tolerance);
    }
}

TEST(Swinir, HalfPrecisionIsNearAndGivesEveryParameterAGradient) {
  const auto golden = test::read_golden("swinir_shuffle2");
  for (const char* policy : {"bf16", "fp16", "bf16_params"}) {
    const auto model = make_swinir(tiny_swinir(), {.precision = precision(policy)});
    test::load_golden(*model, golden);
    const at::Tensor y = model->forward(golden.at("input"), {});
    EXPECT_EQ(y.scalar_type(), c10::kFloat) << "physical units need more than 16 bits";
    EXPECT_LT(test::largest_difference(y, golden.at("output")), 0.05) << policy;
    loss(Loss::l1, y, golden.at("target")).backward();
    for (const Param& param : model->params())
      ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
  }
}

int64_t count_of(SwinirOptions options) {
  return make_swinir(options, {.device = c10::kMeta})->parameters();
}

TEST(Swinir, HasTheCountsOfTheReference) {
  EXPECT_EQ(count_of({}), 11'752'487);
  EXPECT_EQ(count_of({.scale = 3}), 11'937'127);
  EXPECT_EQ(count_of({.scale = 4}), 11'900'199);
  EXPECT_EQ(count_of({.scale = 8}), 12'047'911);
  EXPECT_EQ(count_of({.scale = 16}), 12'195'623);
  SwinirOptions light = {.width = 60,
                         .depths = {6, 6, 6, 6},
                         .heads = {6, 6, 6, 6},
                         .upsampler = Upsampler::pixelshuffledirect};
  for (const auto& [scale, count] : {std::pair(2, 910'152), {3, 918'267}, {4, 929'628}}) {
    light.scale = scale;
    EXPECT_EQ(count_of(light), count);
  }
  EXPECT_EQ(count_of({.scale = 4, .upsampler = Upsampler::nearest_conv}), 11'715'559);
  EXPECT_EQ(count_of({.scale = 4,
                      .width = 240,
                      .depths = std::vector<int64_t>(9, 6),
                      .heads = std::vector<int64_t>(9, 8),
                      .upsampler = Upsampler::nearest_conv,
                      .residual = Residual::conv3}),
            28'013'059);
  EXPECT_EQ(
      count_of({.channels = 1, .scale = 1, .upsampler = Upsampler::none, .mean = {0}, .std = {1}}),
      11'497'681);
  EXPECT_EQ(count_of({.scale = 1, .upsampler = Upsampler::none}), 11'504'163);
  EXPECT_EQ(count_of({.width = 24, .depths = {2, 2}, .heads = {2, 2}}), 201'011);
}

TEST(Swinir, HasTheNamesOfTheReferenceInOrder) {
  std::vector<std::string> expected;
  const auto add = [&](const std::string& name) {
    expected.insert(expected.end(), {name + ".weight", name + ".bias"});
  };
  add("conv_first");
  add("patch_embed.norm");
  for (int group = 0; group < 6; ++group) {
    for (int block = 0; block < 6; ++block) {
      const std::string prefix = fmt::format("layers.{}.residual_group.blocks.{}.", group, block);
      add(prefix + "norm1");
      expected.push_back(prefix + "attn.relative_position_bias_table");
      for (const char* layer : {"attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2"})
        add(prefix + layer);
    }
    add(fmt::format("layers.{}.conv", group));
  }
  for (const char* layer :
       {"norm", "conv_after_body", "conv_before_upsample.0", "upsample.0", "conv_last"})
    add(layer);
  std::vector<std::string> names;
  for (const Param& param : make_swinir({}, {.device = c10::kMeta})->params())
    names.push_back(param.name);
  EXPECT_EQ(names.size(), 494u);
  EXPECT_EQ(names, expected);
}

TEST(Swinir, HasTheFlopsOfTheReferenceInItsTable) {
  const auto crops = make_swinir({}, {.device = c10::kMeta}),
             full = make_swinir({.image = {360, 720}}, {.device = c10::kMeta});
  EXPECT_NEAR(16 * crops->flops_forward() / 1e12, 1.634, 0.0005);
  EXPECT_NEAR(full->flops_forward() / 1e12, 6.462, 0.0005);
  test::expect_rows_hold_all_parameters(*crops);
}

TEST(Swinir, RelativeIndexHasTheCheckValues) {
  const at::Tensor index = relative_index(8);
  const auto value = [&](int64_t i, int64_t j) { return index[i][j].item<int64_t>(); };
  EXPECT_EQ(index.sizes(), at::IntArrayRef({64, 64}));
  EXPECT_EQ(value(0, 0), 112);
  EXPECT_EQ(value(0, 1), 111);
  EXPECT_EQ(value(1, 0), 113);
  EXPECT_EQ(value(0, 63), 0);
  EXPECT_EQ(value(63, 0), 224);
}

TEST(Swinir, ShiftMasksHaveTheCheckValues) {
  const at::Tensor masks = shift_masks(8);
  EXPECT_EQ(masks.sizes(), at::IntArrayRef({4, 64, 64}))
      << "four kinds of window, whatever the image";
  const at::Tensor scores = at::zeros({1, 8, 8, 1, 64, 64}, c10::kDouble);  // of a 64 x 64 image
  add_shift_masks(scores, masks);
  const at::Tensor hidden = scores.eq(-100);
  EXPECT_EQ(hidden.sum().item<int64_t>(), 31'744);
  EXPECT_EQ(scores.eq(0).sum().item<int64_t>(), scores.numel() - 31'744);
  EXPECT_EQ(hidden.flatten(3).any(3).sum().item<int64_t>(), 15);
}

TEST(Swinir, TakesInputsOfAnySize) {
  const auto model = make_swinir(tiny_swinir(), {.seed = 1});
  for (const auto& [h, w] : {std::pair(1, 1), {2, 3}, {4, 4}, {5, 13}, {9, 1}}) {
    const at::Tensor y = model->forward(at::zeros({1, 2, h, w}), {});
    EXPECT_EQ(y.sizes(), at::IntArrayRef({1, 2, 2 * h, 2 * w}));
    EXPECT_TRUE(y.isfinite().all().item<bool>());
  }
}

TEST(Swinir, TrainingDoesNotDependOnHowABatchIsSplit) {
  SwinirOptions options = tiny_swinir();
  options.drop_path = 0.5;
  const auto model = make_swinir(options, {.seed = 1, .precision = precision("fp64")});
  at::Tensor x = at::empty({6, 2, 8, 12}, c10::kDouble);
  fill_normal(x, random_key(1, "x"));
  const auto run = [&](int64_t first, int64_t count) {
    return model->forward(x.narrow(0, first, count),
                          {.training = true, .seed = 2, .step = 3, .first_sample = first});
  };
  EXPECT_LT(test::largest_difference(at::cat({run(0, 2), run(2, 4)}), run(0, 6)), 1e-12);
  EXPECT_FALSE(run(0, 6).equal(model->forward(x, {})));
}

TEST(Swinir, RefusesSizesThatDoNotFit) {
  const auto error = [](SwinirOptions options) {
    return test::error_of([&] { make_swinir(options, {}); });
  };
  EXPECT_TRUE(test::contains(error({.scale = 5}),
                             "model.scale = 5 is not compatible with model.upsampler"));
  EXPECT_TRUE(test::contains(error({.scale = 3, .upsampler = Upsampler::nearest_conv}),
                             "nearest+conv by 2 or 4"));
  EXPECT_TRUE(test::contains(error({.channels = 1}),
                             "model.mean has 3 numbers and model.std 3, model.channels = 1"));
  EXPECT_TRUE(
      test::contains(error({.depths = {6}}), "model.depths has 1 numbers, model.heads has 6"));
  EXPECT_TRUE(
      test::contains(error({.width = 100}), "model.heads = 6 does not divide model.width = 100"));
}

}  // namespace
}  // namespace braid::nn
