// SPDX-License-Identifier: BSD-3-Clause
// A machine that is measured: kernels of the CPU, links of two ranks, and the fits that turn
// seconds into constants.
#include "braid/plan/calibrate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "braid/plan/cost.h"
#include "plan/calibrate_launch.h"
#include "plan/cost_sized.h"
#include "plan/cost_surface.h"
#include "support/expect.h"

namespace braid::test {
namespace {

TEST(Calibrate, KernelsOfTheCpuBecomeACluster) {
  plan::CalibrateOptions options;
  options.dtypes = {"fp32"};
  options.small = true;
  const plan::Cluster cluster = plan::measure_kernels(options);
  EXPECT_NO_THROW(plan::check(cluster, "measured"));
  EXPECT_GT(cluster.gpu.launch, 0);
  EXPECT_GT(cluster.gpu.peak_of(c10::kFloat), 1e8);
  EXPECT_GT(cluster.gpu.bandwidth, 1e8);
  std::set<std::string> kernels;
  for (const plan::Curve& curve : cluster.gpu.curves) {
    kernels.insert(curve.kernel);
    EXPECT_NE(plan::work_of(curve.kernel), plan::Work::view) << curve.kernel;
    for (const plan::CurvePoint& point : curve.points) {
      EXPECT_EQ(point.at.size(), plan::sizes_of(plan::work_of(curve.kernel))) << curve.kernel;
      EXPECT_GT(point.seconds, 0) << curve.kernel;
    }
  }
  for (const char* kernel : {"gemm_nn",
                             "gemm_nt",
                             "gemm_tn",
                             "batched",
                             "convolution",
                             "attention_flash",
                             "attention_backward_flash",
                             "attention_window",
                             "attention_backward_window",
                             "norm",
                             "norm_backward",
                             "softmax",
                             "reduce_columns",
                             "reduce_columns_own",
                             "pointwise",
                             "pointwise_math",
                             "pointwise_gelu",
                             "pointwise_gelu_grad",
                             "pointwise_swiglu",
                             "pointwise_swiglu_grad",
                             "pointwise_rotary",
                             "copy",
                             "copy_cast",
                             "copy_strided",
                             "lookup",
                             "scatter_embedding",
                             "mask",
                             "loss",
                             "loss_backward",
                             "loss_backward_in_place",
                             "update_adam",
                             "update_norm"})
    EXPECT_TRUE(kernels.count(kernel)) << kernel;
}

TEST(Calibrate, MeasuredKernelsAreWhatTheModelLooksUp) {
  plan::CalibrateOptions options;
  options.dtypes = {"fp32"};
  options.small = true;
  options.only = "gemm";
  const plan::Cluster cluster = plan::measure_kernels(options);
  const plan::CostModel model(cluster);
  for (const plan::Curve& curve : cluster.gpu.curves) {
    ASSERT_TRUE(curve.kernel.starts_with("gemm")) << curve.kernel;
    const plan::CurvePoint& point = curve.points.front();
    const auto m = static_cast<int64_t>(point.at[0]), n = static_cast<int64_t>(point.at[1]),
               k = static_cast<int64_t>(point.at[2]);
    memory::Operator op;
    op.name = "aten::mm";
    op.inputs = {{{m, k}, c10::kFloat}, {{k, n}, c10::kFloat}};
    op.outputs = {{{m, n}, c10::kFloat}};
    op.strided = curve.kernel == "gemm_nt" ? 2 : curve.kernel == "gemm_tn" ? 1 : 0;
    EXPECT_NEAR(model.cost(op).seconds, point.seconds, 1e-3 * point.seconds) << curve.kernel;
  }
}

// Forward a sum in fp32, a branch and the result in 16 bits: 12 bytes a number, 3 rows of 16 bits.
TEST(Calibrate, NormsAreAsManyRowsAsTheyMove) {
  const memory::TensorShape wide{{512, 1024}, c10::kFloat}, half{{512, 1024}, c10::kBFloat16},
      statistics{{512, 2}, c10::kFloat};
  memory::Operator op;
  op.name = "braid::layer_norm";
  op.inputs = {wide, half};
  op.outputs = {wide, half, statistics};
  const plan::Sized sized = plan::sized_of(op);
  EXPECT_EQ(sized.kernel, "norm");
  EXPECT_EQ(sized.dtype, c10::kBFloat16);
  EXPECT_NEAR(sized.at[0], 3 * 512, 2);
  EXPECT_EQ(sized.at[1], 1024);
}

TEST(Calibrate, LaunchCostsComeBackFromTheStepsTheyMade) {
  std::vector<plan::LaunchRow> rows;
  for (const auto& [kernels, views] :
       std::vector<std::pair<double, double>>{{500, 900}, {800, 700}, {300, 1000}, {1000, 400}})
    rows.push_back({kernels, views, 6e-6 * kernels + 0.7e-6 * views});
  const plan::LaunchCosts costs = plan::fit_launch(rows);
  EXPECT_NEAR(costs.kernel, 6e-6, 1e-12);
  EXPECT_NEAR(costs.view, 0.7e-6, 1e-12);
}

TEST(Calibrate, LaunchCostsOfRowsThatAreAlikeStayPositive) {
  const plan::LaunchCosts costs = plan::fit_launch({{100, 200, 1e-3}, {200, 400, 2e-3}});
  EXPECT_GT(costs.kernel, 0);
  EXPECT_GT(costs.view, 0);
  EXPECT_NEAR(costs.kernel * 100 + costs.view * 200, 1e-3, 1e-9);
}

// Latency and bandwidth that made the times come back within 2 %, with noise of 5 %.
TEST(Calibrate, LinksComeBackFromTheTimesTheyMade) {
  const int ranks = 8;
  const double latency = 4e-6, bandwidth = 30e9;
  std::vector<plan::CommPoint> points;
  double noise = 0.95;
  for (const comm::Kind kind :
       {comm::Kind::all_reduce, comm::Kind::all_gather, comm::Kind::reduce_scatter})
    for (int64_t bytes = 1 << 10; bytes <= 1 << 28; bytes *= 4) {
      const double times = kind == comm::Kind::all_reduce ? 2 : 1;
      const double seconds =
          times * (7 * latency + 7.0 / 8 * static_cast<double>(bytes) / bandwidth);
      points.push_back({.kind = kind, .bytes = bytes, .seconds = seconds * noise});
      noise = noise < 1 ? 1.05 : 0.95;
    }
  const plan::Link link = plan::fit_link(points, ranks);
  EXPECT_NEAR(link.latency, latency, 0.02 * latency);
  EXPECT_NEAR(link.bandwidth, bandwidth, 0.02 * bandwidth);
  EXPECT_EQ(link.share, 1);
}

TEST(Calibrate, ARatioIsKeptBeyondTheLastPointAndMeanBetweenTwo) {
  const plan::Curve curve{"copy", "fp32", {{{1024}, 2.0}, {{4096}, 8.0}}};
  const auto guess = [](const std::vector<double>& at) { return at[0] / 1024; };
  const plan::Surface surface(curve, plan::Between::grid, guess);
  EXPECT_NEAR(surface.ratio({512}), 2, 1e-12);
  EXPECT_NEAR(surface.ratio({2048}), 2, 1e-12);
  EXPECT_NEAR(surface.ratio({1 << 20}), 2, 1e-12);
  const plan::Curve steep{"copy", "fp32", {{{1024}, 1.0}, {{4096}, 16.0}}};
  const plan::Surface bent(steep, plan::Between::grid, guess);
  EXPECT_NEAR(bent.ratio({2048}), 2, 1e-12);  // between 1 and 4, in logarithms
}

// Rows of another width are another kernel: a nearer number of them does not bring it closer.
TEST(Calibrate, OnAGridEverySizeCountsForItself) {
  const plan::Curve curve{
      "norm", "fp32", {{{16, 64}, 1}, {{1024, 64}, 1}, {{16, 80}, 4}, {{1024, 80}, 16}}};
  const auto one = [](const std::vector<double>&) { return 1.0; };
  const plan::Surface surface(curve, plan::Between::grid, one);
  EXPECT_NEAR(surface.ratio({128, 64}), 1, 1e-12);
  EXPECT_NEAR(surface.ratio({128, 80}), 8, 1e-12);
  EXPECT_NEAR(surface.ratio({128, std::sqrt(64.0 * 80)}), std::sqrt(8.0), 1e-12);
  EXPECT_NEAR(surface.ratio({4, 20}), 1, 1e-12);
  EXPECT_NEAR(surface.ratio({4096, 4096}), 16, 1e-12);
}

}  // namespace
}  // namespace braid::test
