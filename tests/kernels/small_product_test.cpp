// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/small_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace braid::kernels {
namespace {

template <class W>
std::vector<W> waves(int64_t count, double phase) {
  std::vector<W> x;
  for (int64_t i = 0; i < count; ++i)
    x.push_back(static_cast<W>(std::sin(phase + static_cast<double>(i))));
  return x;
}

// Largest error against sums one after the other, in fp64.
template <class W>
double worst_product(const SmallSizes& s, bool turned, Instructions with) {
  const auto a = waves<W>(s.rows * s.inner, 1), b = waves<W>(s.inner * s.columns, 2);
  const SmallFactors<W> factors = {.a = a.data(),
                                   .a_row = turned ? 1 : s.inner,
                                   .a_column = turned ? s.rows : 1,
                                   .b = b.data(),
                                   .b_row = s.columns};
  std::vector<W> out(static_cast<size_t>(s.rows * s.columns), W(99));
  small_product<W>(factors, out.data(), s, with);
  double worst = 0;
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t j = 0; j < s.columns; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < s.inner; ++k)
        sum += static_cast<double>(a[i * factors.a_row + k * factors.a_column]) *
               static_cast<double>(b[k * s.columns + j]);
      worst = std::max(worst, std::abs(sum - static_cast<double>(out[i * s.columns + j])));
    }
  return worst;
}

TEST(SmallProduct, IsThatOfOneNumberAfterTheOther) {
  for (const Instructions with : {Instructions::any, Instructions::avx2, Instructions::avx512}) {
    if (with > widest_instructions()) continue;
    for (const int64_t rows : {1, 4, 7, 8, 15, 64})
      for (const int64_t inner : {1, 10, 64})
        for (const int64_t vectors : {1, 2, 3, 4})
          for (const bool turned : {false, true}) {
            const auto sizes = [&](int64_t lanes) {
              return SmallSizes{.rows = rows, .inner = inner, .columns = vectors * lanes};
            };
            EXPECT_LT(worst_product<float>(sizes(whole_vector<float>), turned, with), 2e-5);
            EXPECT_LT(worst_product<double>(sizes(whole_vector<double>), turned, with), 4e-14);
          }
  }
}

TEST(SmallProduct, OfNothingIsZero) {
  EXPECT_EQ(
      worst_product<float>({.rows = 5, .inner = 0, .columns = 16}, false, widest_instructions()),
      0);
}

TEST(SmallProduct, ColumnsAreWholeVectors) {
  EXPECT_EQ(whole_vectors<float>(1), 16);
  EXPECT_EQ(whole_vectors<float>(32), 32);
  EXPECT_EQ(whole_vectors<double>(49), 56);
}

}  // namespace
}  // namespace braid::kernels
