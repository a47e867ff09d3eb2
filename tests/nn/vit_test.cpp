// SPDX-License-Identifier: BSD-3-Clause
// ViT against the fixture of the reference, an own PyTorch script (tests/golden/make_vit.py),
// counts and formulas.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/core/rng.h"
#include "braid/nn/options.h"
#include "nn/fields.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

const VitOptions fixture_sizes = {.image = {16, 32},
                                  .patch = 8,
                                  .channels_in = 3,
                                  .channels_out = 3,
                                  .width = 16,
                                  .depth = 2,
                                  .heads = 2};
const VitOptions golden_sizes = {.image = {16, 24},
                                 .patch = 8,
                                 .channels_in = 3,
                                 .channels_out = 2,
                                 .width = 16,
                                 .depth = 2,
                                 .heads = 2};

at::Tensor counting(at::IntArrayRef sizes, double step, double offset = 0) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return at::arange(count, c10::kDouble).mul_(step).add_(offset).view(sizes);
}

at::Tensor rounded(const at::Tensor& x) { return x.to(c10::kFloat).to(c10::kDouble); }

std::unique_ptr<Model> fixture(std::string_view policy) {
  auto model = make_vit(fixture_sizes, {.precision = precision(policy)});
  at::NoGradGuard no_graph;
  int64_t number = 0;
  for (const Param& param : model->params()) {
    const at::Tensor wave = rounded(
        counting(param.tensor.sizes(), 0.7, static_cast<double>(number++)).sin_().mul_(0.1));
    const bool scale =
        param.name.find("norm") != std::string::npos && param.name.ends_with("weight");
    param.tensor.copy_(rounded(wave.add(scale ? 1 : 0)));  // the sum is rounded too
  }
  return model;
}

TEST(Vit, HasTheOutputAndLossOfTheReference) {
  const auto model = fixture("fp64");
  const at::Tensor x = rounded(counting({2, 3, 16, 32}, 0.37).sin_()),
                   t = rounded(counting({2, 3, 16, 32}, 0.11).cos_());
  const at::Tensor y = model->forward(x, {});
  EXPECT_NEAR(y.sum().item<double>(), 1.97682907, 5e-9);
  EXPECT_NEAR(y.abs().mean().item<double>(), 0.0819700669, 5e-11);
  const std::vector<double> first = {0.0419306783, -0.1801154488, 0.1654003665, -0.0102770862};
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_NEAR(y[0][0][0][i].item<double>(), first[i], 5e-11);
  EXPECT_NEAR(y[1][2][15][31].item<double>(), -0.1001088763, 5e-11);
  EXPECT_NEAR(loss(Loss::relative_l2, y, t).item<double>(), 1.0110184528, 5e-11);
}

TEST(Vit, HasTheGradientsOfPyTorch) {
  const auto golden = test::read_golden("vit");
  for (const auto& [policy, tolerance] : {std::pair("fp64", 1e-10), std::pair("fp32", 1e-4)}) {
    const auto model = make_vit(golden_sizes, {.precision = precision(policy)});
    test::expect_golden_fields(*model, golden, Loss::relative_l2, tolerance);
  }
}

TEST(Vit, HalfPrecisionIsNearAndGivesEveryParameterAGradient) {
  const auto golden = test::read_golden("vit");
  for (const char* policy : {"bf16", "fp16", "bf16_params"}) {
    const auto model = make_vit(golden_sizes, {.precision = precision(policy)});
    test::load_golden(*model, golden);
    const at::Tensor y = model->forward(golden.at("input"), {});
    EXPECT_LT(test::distance(y, golden.at("output")), 0.05) << policy;
    loss(Loss::relative_l2, y, golden.at("target")).backward();
    for (const Param& param : model->params()) {
      ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
      if (!param.name.ends_with("attn.k.bias"))
        EXPECT_LT(test::distance(param.tensor.grad(), golden.at("grad." + param.name)), 0.15)
            << policy << " " << param.name;
    }
  }
}

std::unique_ptr<Model> counted(int64_t width, int64_t patch) {
  return make_vit({.patch = patch, .width = width}, {.device = c10::kMeta});
}

TEST(Vit, HasTheCountsOfTheReference) {
  EXPECT_EQ(counted(384, 8)->parameters(), 23'832'960);
  EXPECT_EQ(counted(1536, 8)->parameters(), 350'135'808);
  EXPECT_EQ(counted(1536, 4)->parameters(), 365'849'088);
}

TEST(Vit, HasTheFormulaOfTheReferenceInItsTable) {
  for (const auto& [width, patch, teraflops] :
       {std::tuple(384, 8, 0.482), {1536, 8, 3.993}, {1536, 4, 30.39}}) {
    const auto model = counted(width, patch);
    const double d = width, p = patch, n = (360 / p) * (720 / p);
    const double expected = 12 * (24 * n * d * d + 4 * n * n * d) + 4 * n * d * 20 * p * p;
    EXPECT_DOUBLE_EQ(model->flops_forward(), expected);
    EXPECT_NEAR(model->flops_forward() / 1e12, teraflops, 0.001 * teraflops + 0.0005);
    test::expect_rows_hold_all_parameters(*model);
  }
}

TEST(Vit, HasTheNamesOfTheReferenceInOrder) {
  std::vector<std::string> expected = {"pos_embed", "patch_embed.proj.weight",
                                       "patch_embed.proj.bias"};
  for (int i = 0; i < 12; ++i)
    for (const char* layer :
         {"norm1", "norm2", "attn.q", "attn.k", "attn.v", "attn.proj", "mlp.fc1", "mlp.fc2"})
      for (const char* kind : {"weight", "bias"})
        expected.push_back("blocks." + std::to_string(i) + "." + layer + "." + kind);
  expected.insert(expected.end(), {"norm.weight", "norm.bias", "head.weight"});
  std::vector<std::string> names;
  const auto params = counted(384, 8)->params();
  for (const Param& param : params) names.push_back(param.name);
  EXPECT_EQ(names.size(), 198u);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(params[0].tensor.sizes(), at::IntArrayRef({1, 4050, 384}));
  EXPECT_EQ(params.back().tensor.sizes(), at::IntArrayRef({1280, 384}));
}

TEST(Vit, TrainingDoesNotDependOnHowABatchIsSplit) {
  VitOptions options = golden_sizes;
  options.dropout = 0.2;  // also of attention weights and whole branches
  const auto model = make_vit(options, {.seed = 1, .precision = precision("fp64")});
  at::Tensor x = at::empty({4, 3, 16, 24}, c10::kDouble);
  fill_normal(x, random_key(1, "x"));
  const auto run = [&](int64_t first, int64_t count) {
    return model->forward(x.narrow(0, first, count),
                          {.training = true, .seed = 2, .step = 3, .first_sample = first});
  };
  EXPECT_LT(test::largest_difference(at::cat({run(0, 1), run(1, 3)}), run(0, 4)), 1e-12);
  EXPECT_GT(test::largest_difference(run(0, 4), model->forward(x, {})), 1e-2);
}

TEST(Vit, RefusesSizesThatDoNotFit) {
  const std::string patch = test::error_of([] { make_vit({.image = {360, 720}, .patch = 7}, {}); });
  EXPECT_TRUE(test::contains(patch, "model.patch = 7 does not divide a side of model.image = 360"));
  const std::string heads = test::error_of([] { make_vit({.width = 384, .heads = 7}, {}); });
  EXPECT_TRUE(test::contains(heads, "model.heads = 7 does not divide model.width = 384"));
  EXPECT_TRUE(test::contains(heads, "set model.heads to one of 1, 2, 3, 4, 6, 8"));
  EXPECT_TRUE(test::contains(test::error_of([] { make_vit({.image = {360}}, {}); }),
                             "two positive numbers"));
}

}  // namespace
}  // namespace braid::nn
