// SPDX-License-Identifier: BSD-3-Clause
// Weights of rows against those of WeatherBench 2 (tests/golden/make_metrics.py prints the
// numbers).
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/nn/metrics.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

using Rows = std::vector<double>;

Rows even_rows(double first, double step) {
  Rows rows;
  for (int row = 0; row < 16; ++row) rows.push_back(first + step * row);
  return rows;
}

at::Tensor area_wave(double scale) {
  return at::arange(2 * 2 * 16 * 20, c10::kDouble).view({2, 2, 16, 20}).mul_(scale);
}

struct AreaCase {
  const char* name;
  Rows rows;
  Area kind;
  double first, second, ninth;  // weights of these rows
  Rows rmse;                    // of the waves; empty: not compared
};

class AreaWeights : public testing::TestWithParam<AreaCase> {};

TEST_P(AreaWeights, AreThoseOfWeatherBenchInBothOrders) {
  const AreaCase& given = GetParam();
  const at::Tensor target = area_wave(0.11).cos_().add_(0.5);
  const at::Tensor output = area_wave(0.37).sin_().mul_(0.2).add_(target);
  const at::Tensor weights = row_weights(given.kind, given.rows);
  EXPECT_NEAR(weights[0].item<double>(), given.first, 2e-12);
  EXPECT_NEAR(weights[1].item<double>(), given.second, 2e-12);
  EXPECT_NEAR(weights[8].item<double>(), given.ninth, 2e-12);
  EXPECT_NEAR(weights.mean().item<double>(), 1, 1e-14);
  const at::Tensor rmse = weighted_rmse(output, target, weights);
  for (size_t i = 0; i < given.rmse.size(); ++i)
    EXPECT_NEAR(rmse.flatten()[static_cast<int64_t>(i)].item<double>(), given.rmse[i], 2e-12);
  Rows falling = given.rows;
  std::ranges::reverse(falling);
  const at::Tensor turned = row_weights(given.kind, falling);
  EXPECT_TRUE(turned.flip({0}).allclose(weights, 1e-14, 0));
  EXPECT_TRUE(weighted_rmse(output.flip({2}), target.flip({2}), turned).allclose(rmse, 1e-14, 0));
}

INSTANTIATE_TEST_SUITE_P(
    Grids, AreaWeights,
    testing::Values(
        AreaCase{"poles",
                 even_rows(-90, 12),
                 Area::cells,
                 0.043824837054,
                 0.347723032585,
                 1.663293526542,
                 {0.141413482806, 0.141456865794, 0.141402208002, 0.141400408249}},
        AreaCase{"no_poles",
                 even_rows(-84.375, 11.25),
                 Area::automatic,
                 0.153717756774,
                 0.455245983136,
                 1.560722576129,
                 {0.141426997573, 0.141395906840, 0.141435075063, 0.141436364339}},
        AreaCase{"region",
                 even_rows(20, 2.5),
                 Area::cells,
                 1.229636549306,
                 1.208944302852,
                 1.002408899267,
                 {0.141430974454, 0.140956179108, 0.141764659947, 0.141624109955}},
        AreaCase{"gaussian",
                 {-81.65059075030348, -70.83463975032743, -59.9548586431818, -49.06071863417398,
                  -38.16121191140983, -27.25920765080937, -16.355932964839738, -5.452039830190821,
                  5.452039830190821, 16.355932964839738, 27.25920765080937, 38.16121191140983,
                  49.06071863417398, 59.9548586431818, 70.83463975032743, 81.65059075030348},
                 Area::cells,
                 0.229508585285,
                 0.496907769329,
                 1.513310104462,
                 {}},
        AreaCase{"cosine",
                 even_rows(20, 2.5),
                 Area::cos,
                 1.229636549306,
                 1.208944302852,
                 1.002408899267,
                 {}}),
    [](const auto& row) { return row.param.name; });

TEST(AreaWeightsOf, ReferenceNeedsNoLatitudes) {
  EXPECT_TRUE(row_weights(Area::reference, even_rows(20, 2.5)).equal(latitude_weights(16)));
  EXPECT_EQ(row_weights(Area::cells, {51.5})[0].item<double>(), 1) << "one row: no bounds";
}

TEST(AreaWeightsOf, WrongLatitudesAreRefused) {
  const auto refusal = [](Area kind, const Rows& rows) {
    return test::error_of([&] { row_weights(kind, rows); });
  };
  EXPECT_TRUE(test::contains(refusal(Area::cells, {10, 20, 15}),
                             "the latitudes neither rise nor fall: row 1 is at 20, row 2 at 15"));
  EXPECT_TRUE(test::contains(refusal(Area::cells, {10, 10}), "row 0 is at 10, row 1 at 10"));
  EXPECT_TRUE(
      test::contains(refusal(Area::cos, {10, 100}), "row 1 of the grid has the latitude 100"));
  EXPECT_NO_THROW(row_weights(Area::cos, {10, 20, 15})) << "a cosine needs no order";
}

}  // namespace
}  // namespace braid::nn
