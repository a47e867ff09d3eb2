// SPDX-License-Identifier: BSD-3-Clause
// Metrics of two waves against NumPy (tests/golden/make_metrics.py prints these numbers).
#include "braid/nn/metrics.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/expect.h"

namespace braid::nn {
namespace {

at::Tensor wave_index() { return at::arange(2 * 2 * 16 * 20, c10::kDouble).view({2, 2, 16, 20}); }
at::Tensor wave_target() { return wave_index().mul_(0.11).cos_().add_(0.5); }
at::Tensor wave_output() { return wave_index().mul_(0.37).sin_().mul_(0.2).add_(wave_target()); }

void expect_values(const at::Tensor& found, const std::vector<double>& wanted) {
  ASSERT_EQ(found.sizes(), at::IntArrayRef({2, 2}));
  for (int64_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i / 2][i % 2].item<double>(), wanted[i], 2e-12);
}

TEST(Metrics, LatitudeWeightsUseTheRoundedPi) {
  const at::Tensor weights = latitude_weights(16);
  EXPECT_NEAR(weights[0].item<double>(), -0.000006177128, 1e-12);
  EXPECT_NEAR(weights[1].item<double>(), 0.349634110336, 1e-12);
  EXPECT_NEAR(weights[8].item<double>(), 1.672459954603, 1e-12);
  EXPECT_NEAR(latitude_weights(360).mean().item<double>(), 1, 1e-12);
}

TEST(Metrics, RmseAndCorrelationAreWeightedByLatitude) {
  expect_values(weighted_rmse(wave_output(), wave_target()),
                {0.141408123744, 0.141481029196, 0.141389173855, 0.141386148864});
  expect_values(weighted_cosine(wave_output(), wave_target()),
                {0.986968638778, 0.986831670885, 0.987065699352, 0.986812602386});
  EXPECT_EQ(weighted_rmse(wave_target(), wave_target()).abs().max().item<double>(), 0);
}

TEST(Metrics, PictureMetricsAreThoseOfNumpy) {
  expect_values(psnr(wave_output(), wave_target(), 0),  // the maximum of the target
                {20.504717762271, 20.542306151809, 20.494752280525, 20.493387828238});
  expect_values(ssim(wave_output(), wave_target()),
                {0.979500894932, 0.979543967287, 0.979583468058, 0.979557260695});
  expect_values(rfne(wave_output(), wave_target()),
                {0.164178163813, 0.158501349089, 0.170879417524, 0.159333694204});
  expect_values(ssim(wave_target(), wave_target()), {1, 1, 1, 1});
}

TEST(Metrics, TheRangeOfPsnrIsStated) {
  expect_values(psnr(wave_output(), wave_target()),  // max - min of the target
                {23.003451708646, 23.039564433923, 22.993586028212, 22.992127035213});
  expect_values(psnr(wave_output(), wave_target(), 2),
                {23.003492494437, 23.041139971840, 22.993763365356, 22.992212430057});
  // An offset changes neither error nor range: kelvin, celsius and fields below zero agree.
  for (const double offset : {-20.0, 273.15})
    expect_values(psnr(wave_output() + offset, wave_target() + offset),
                  {23.003451708646, 23.039564433923, 22.993586028212, 22.992127035213});
  EXPECT_FALSE(psnr(wave_output() - 20, wave_target() - 20, 0).isnan().any().item<bool>());
}

TEST(Metrics, HalfPrecisionFieldsAreMeasuredInSingle) {
  const at::Tensor p = wave_output().to(c10::kBFloat16), t = wave_target().to(c10::kBFloat16);
  EXPECT_EQ(ssim(p, t).scalar_type(), c10::kFloat);
  EXPECT_NEAR(weighted_rmse(p, t)[0][0].item<double>(), 0.1414, 1e-3);
}

TEST(Metrics, HitsCountRightLabelsThatAreNotIgnored) {
  const at::Tensor scores = at::tensor({0.1, 0.9, 0.8, 0.2, 0.3, 0.7, 0.6, 0.4}).view({2, 2, 2});
  EXPECT_TRUE(
      hits(scores, at::tensor({1L, 1L, 1L, -100L}).view({2, 2})).equal(at::tensor({0.5F, 1.0F})));
  EXPECT_TRUE(hits(scores.flatten(0, 1), at::tensor({1L, 0L, 0L, 0L}))
                  .equal(at::tensor({1.0F, 1.0F, 0.0F, 1.0F})));
  EXPECT_EQ(hits(scores, at::tensor({-100L, -100L, 1L, 0L}).view({2, 2}))[0].item<float>(), 0)
      << "none counted: no NaN";
}

TEST(Metrics, RefuseFieldsThatDoNotFit) {
  const std::string shapes =
      test::error_of([] { weighted_rmse(at::zeros({1, 2, 8, 8}), at::zeros({1, 2, 8, 9})); });
  EXPECT_TRUE(
      test::contains(shapes, "an output of shape [1, 2, 8, 8] and a target of shape [1, 2, 8, 9]"));
  const std::string small =
      test::error_of([] { ssim(at::zeros({1, 2, 8, 8}), at::zeros({1, 2, 8, 8})); });
  EXPECT_TRUE(test::contains(small, "at least 11 x 11"));
}

}  // namespace
}  // namespace braid::nn
