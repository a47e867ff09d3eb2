// SPDX-License-Identifier: BSD-3-Clause
// Loops in the instructions of this machine and of older ones: exponentials against long doubles,
// sums and maxima of all lengths, rows of other dtypes.
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "braid/core/rng.h"
#include "kernels/cpu_rows.h"
#include "kernels/wide_exp.h"
#include "support/instructions.h"

namespace braid::kernels {
namespace {

template <class W>
std::vector<W> exponentials(const std::vector<W>& x, Instructions with) {
  std::vector<W> y(x.size());
  widest(
      [&] { along(static_cast<int64_t>(x.size()), [&](int64_t i) { y[i] = exponential(x[i]); }); },
      with);
  return y;
}

// The largest error in units of the last place.
template <class W>
double worst_exponential(W from, W to, Instructions with) {
  std::vector<W> x;
  for (int64_t i = 0; i <= 100'000; ++i)
    x.push_back(from + (to - from) * static_cast<W>(i) / W(100'000));
  const std::vector<W> y = exponentials(x, with);
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const long double exact = std::exp(static_cast<long double>(x[i]));
    const long double unit = exact * std::numeric_limits<W>::epsilon();
    worst = std::max(worst, static_cast<double>(std::abs((y[i] - exact) / unit)));
  }
  return worst;
}

TEST(Wide, ExponentialsAreRightToTheLastPlaces) {
  for (const Instructions with : test::instructions_here()) {
    EXPECT_LT(worst_exponential<float>(-87, 88.7f, with), 2);
    EXPECT_LT(worst_exponential<double>(-708, 709.7, with), 2);
    EXPECT_LT(worst_exponential<float>(-1e-3f, 1e-3f, with), 1);
  }
}

template <class W>
void check_ends_of_exponential(Instructions with) {
  const W infinity = std::numeric_limits<W>::infinity(), least = std::numeric_limits<W>::min();
  const W nan = std::numeric_limits<W>::quiet_NaN();
  const std::vector<W> y =
      exponentials<W>({infinity, -infinity, nan, W(0), W(1e6), W(-1e6), std::log(least) - 2}, with);
  EXPECT_EQ(y[0], infinity);
  EXPECT_EQ(y[1], W(0));
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], W(1));
  EXPECT_EQ(y[4], infinity);
  EXPECT_EQ(y[5], W(0));
  EXPECT_NEAR(y[6] / least, std::exp(-2.0), 1e-6);  // too small for a normal number
}

TEST(Wide, ExponentialsOfInfinitiesAndNan) {
  for (const Instructions with : test::instructions_here()) {
    check_ends_of_exponential<float>(with);
    check_ends_of_exponential<double>(with);
  }
}

TEST(Wide, AnElementDependsNeitherOnItsPlaceNorOnTheInstructions) {
  std::vector<float> x(77);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i)) * 20;
  const std::vector<float> all = exponentials(x, Instructions::any);
  for (const Instructions with : test::instructions_here()) {
    EXPECT_EQ(exponentials(x, with), all);
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(exponentials<float>({x[i]}, with)[0], all[i]) << i;
  }
}

TEST(Wide, ASumDoesNotDependOnTheInstructions) {
  std::vector<float> x(1000), y(1000);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(static_cast<float>(i));
    y[i] = std::cos(static_cast<float>(3 * i));
  }
  const auto sum = [&](Instructions with) {
    float result = 0;
    widest([&] { result = sum_along<float>(1000, [&](int64_t i) { return x[i] * y[i]; }); }, with);
    return result;
  };
  for (const Instructions with : test::instructions_here())
    EXPECT_EQ(sum(with), sum(Instructions::any));
}

TEST(Wide, SumsAndMaximaOfAllLengths) {
  for (const Instructions with : test::instructions_here())
    for (int64_t count = 0; count < 140; ++count) {
      std::vector<double> x(static_cast<size_t>(count));
      std::iota(x.begin(), x.end(), -70);  // sums are exact
      double sum = 0, top = 0;
      widest(
          [&] {
            sum = sum_along<double>(count, [&](int64_t i) { return x[i]; });
            top = largest_along(count, -100.0, [&](int64_t i) { return x[i]; });
          },
          with);
      EXPECT_EQ(sum, std::accumulate(x.begin(), x.end(), 0.0)) << count;
      EXPECT_EQ(top, count == 0 ? -100 : x.back()) << count;
    }
}

TEST(Wide, RowsOfOtherDtypesAreThoseOfTorch) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kHalf, c10::kBFloat16}) {
    at::Tensor x = at::empty({3, 37}, at::kFloat);
    fill_normal(x, random_key(3, "rows"));
    x[1][5] = std::numeric_limits<float>::quiet_NaN();
    x[2][36] = std::numeric_limits<float>::infinity();
    const at::Tensor stored = x.to(dtype), longer = at::full({3, 40}, 7, stored.options());
    std::vector<float> space(37);
    for (int64_t row = 0; row < 3; ++row) {
      const at::Tensor read = at::empty({37}, at::kFloat);
      const float* from = RowsIn<float>(stored).row(row, space);
      std::copy(from, from + 37, read.mutable_data_ptr<float>());
      EXPECT_TRUE(read.allclose(stored[row].to(at::kFloat), 0, 0, /*equal_nan=*/true));

      const RowsOut<float> out(longer);
      float* to = out.row(row, space);
      std::copy(x[row].const_data_ptr<float>(), x[row].const_data_ptr<float>() + 37, to);
      out.done(row, space);
      EXPECT_TRUE(longer[row].narrow(0, 0, 37).allclose(stored[row], 0, 0, /*equal_nan=*/true));
      EXPECT_EQ(longer[row].narrow(0, 37, 3).abs().max().item<double>(), 0);
    }
  }
}

TEST(Wide, NoRowsAreZeros) {
  EXPECT_FALSE(RowsIn<float>(at::Tensor()));
  EXPECT_EQ(RowsIn<float>(at::Tensor()).values(0, 3), std::vector<float>(3));
}

}  // namespace
}  // namespace braid::kernels
