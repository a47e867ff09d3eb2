// SPDX-License-Identifier: BSD-3-Clause
// Every published row beside its prediction; docs/predictions.md holds the table as printed here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "braid/plan/published.h"
#include "plan/published_stretch.h"

namespace braid::plan {
namespace {

TEST(PublishedTimes, ComputeBoundRowsAreWithinEightPercentOnAverage) {
  double sum = 0, unseen = 0;
  int rows = 0, others = 0;
  for (const PublishedTime& row : published_times()) {
    const PredictedTime predicted = predict(row);
    std::fputs(published_line(row, predicted).c_str(), stdout);
    EXPECT_GT(predicted.value, 0) << row.run;
    if (!row.counts) continue;
    const double error = std::abs(predicted.error(row));
    EXPECT_LT(error, 0.35) << row.run;
    sum += error;
    ++rows;
    if (row.fitted) continue;
    unseen += error;
    ++others;
  }
  EXPECT_GE(rows, 30);
  EXPECT_LE(sum / rows, 0.08);
  EXPECT_LE(unseen / others, 0.08) << "rows that nothing was fitted on";
}

// A small pipeline in full, and out of smaller ones.
TEST(PublishedTimes, LongPipelinesAreStretchedShortOnes) {
  const std::vector<PublishedTime>& rows = published_times();
  const PublishedTime& row = *std::find_if(rows.begin(), rows.end(), [](const PublishedTime& r) {
    return r.run.starts_with("GPT 1008 B");
  });
  const CostModel model(cluster_of(row));
  const Extent from = {64, 512, 2}, whole = {5, 15, 5};
  const auto parts = [&](const Extent& extent) {
    const train::RunOptions run = resized(row.options, from, extent);
    const int64_t world = row.world / from.stages * extent.stages;
    return simulate(dry_layout(run, world, {.evaluation = false}), model).parts;
  };
  const double full = total(parts(whole));
  EXPECT_NEAR(total(stretched(whole, parts)), full, 0.01 * full);
}

}  // namespace
}  // namespace braid::plan
