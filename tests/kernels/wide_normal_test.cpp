// SPDX-License-Identifier: BSD-3-Clause
// The normal distribution against long doubles in the instructions of this machine and of older
// ones, and GELU that is made of it against torch's.
#include "kernels/wide_normal.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/linspace.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "braid/kernels/activation.h"
#include "support/instructions.h"

namespace braid::kernels {
namespace {

template <class W>
struct NormalValues {
  std::vector<W> share, density;
  bool operator==(const NormalValues&) const = default;
};

template <class W>
NormalValues<W> normals(const std::vector<W>& x, Instructions with) {
  NormalValues<W> all = {std::vector<W>(x.size()), std::vector<W>(x.size())};
  const auto each = [&](int64_t i) {
    const Normal here(x[i]);
    all.share[i] = here.share;
    all.density[i] = here.density;
  };
  widest([&] { along(static_cast<int64_t>(x.size()), each); }, with);
  return all;
}

template <class W>
std::vector<W> numbers_between(W from, W to) {
  std::vector<W> x;
  for (int64_t i = 0; i <= 50'000; ++i)
    x.push_back(from + (to - from) * static_cast<W>(i) / W(5e4));
  return x;
}

// The largest relative error in units of the last place. Rounding of x^2 / 2 moves its exponential
// by so many units: it is the condition of the function, and not counted.
template <class W>
double worst_share(W from, W to, Instructions with) {
  const std::vector<W> x = numbers_between(from, to);
  const NormalValues<W> all = normals(x, with);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double at = x[i], exact = 0.5L * std::erfc(-at / std::sqrt(2.0L));
    const long double density = std::exp(-at * at / 2) / std::sqrt(2 * std::acos(-1.0L));
    const long double unit = std::numeric_limits<W>::epsilon() * (1 + at * at / 2);
    worst = std::max({worst, static_cast<double>(std::abs(all.share[i] / exact - 1) / unit),
                      static_cast<double>(std::abs(all.density[i] / density - 1) / unit)});
  }
  return worst;
}

TEST(WideNormal, SharesAreRightToTheLastPlacesAlsoFarOut) {
  for (const Instructions with : test::instructions_here()) {
    EXPECT_LT(worst_share<float>(-12.5, 12.5, with), 3);
    EXPECT_LT(worst_share<float>(-1, 1, with), 3);
    EXPECT_LT(worst_share<double>(-37, 37, with), 4);
    EXPECT_LT(worst_share<double>(-1, 1, with), 4);
  }
}

template <class W>
void check_ends_of_normal(Instructions with) {
  const W infinity = std::numeric_limits<W>::infinity(), nan = std::numeric_limits<W>::quiet_NaN();
  const NormalValues<W> all =
      normals<W>({-infinity, infinity, nan, W(-1e30), W(1e30), W(0), W(-0.0)}, with);
  EXPECT_EQ(all.share[0], 0);
  EXPECT_EQ(all.share[1], 1);
  EXPECT_TRUE(std::isnan(all.share[2]) && std::isnan(all.density[2]));
  EXPECT_EQ(all.share[3], 0);
  EXPECT_EQ(all.share[4], 1);
  for (const size_t zero : {5, 6})
    EXPECT_NEAR(all.share[zero], 0.5, std::numeric_limits<W>::epsilon());
  for (const size_t far : {0, 1, 3, 4}) EXPECT_EQ(all.density[far], 0);
}

TEST(WideNormal, OfInfinitiesHugeNumbersAndNan) {
  for (const Instructions with : test::instructions_here()) {
    check_ends_of_normal<float>(with);
    check_ends_of_normal<double>(with);
  }
}

TEST(WideNormal, DependsNeitherOnThePlaceNorOnTheInstructions) {
  const std::vector<float> x = numbers_between<float>(-9, 9);
  const NormalValues<float> all = normals(x, Instructions::any);
  for (const Instructions with : test::instructions_here()) {
    EXPECT_TRUE(normals(x, with) == all);
    EXPECT_EQ(normals<float>({x[777]}, with).share[0], all.share[777]);
  }
}

TEST(Gelu, IsTorchsWithItsGradientInEachDtype) {
  for (const auto& [dtype, relative] :
       {std::pair{c10::kDouble, 1e-15}, {c10::kFloat, 1e-6}, {c10::kBFloat16, 1e-2}}) {
    const at::Tensor x =
        at::linspace(-6, 6, 999, at::TensorOptions(c10::kDouble)).view({27, 37}).to(dtype);
    const at::Tensor given = x.cos(), exact = x.to(c10::kDouble);
    const at::Tensor back = at::gelu_backward(given.to(c10::kDouble), exact);
    at::Tensor grad = given.clone();
    const ActivationBack got = activation_back({Activation::gelu, x}, grad, {});
    const auto error = [](const at::Tensor& a, const at::Tensor& b) {
      return a.to(c10::kDouble).sub(b).norm().div(b.norm()).item<double>();
    };
    EXPECT_LT(error(got.value, at::gelu(exact)), relative) << dtype;
    EXPECT_LT(error(grad, back), relative) << dtype;
    EXPECT_TRUE(activation_value({Activation::gelu, x}).equal(got.value)) << dtype;
  }
}

}  // namespace
}  // namespace braid::kernels
