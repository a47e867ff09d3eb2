// SPDX-License-Identifier: BSD-3-Clause
// Counts and states to the digit that is printed; of the times the quick ones. All of them stand in
// tests/plans.
#include "braid/plan/published.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "support/expect.h"

namespace braid::plan {
namespace {

const PublishedTime& row_called(const std::string& run, const std::string& cluster) {
  const std::vector<PublishedTime>& rows = published_times();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const PublishedTime& row) {
    return row.run.starts_with(run) && row.cluster == cluster;
  });
  EXPECT_NE(found, rows.end()) << run;
  return *found;
}

TEST(Published, EveryCountOfParametersIsThePrintedOne) {
  for (const PublishedCount& row : published_counts()) {
    const int64_t count = count_parameters(row.options);
    if (row.printed.find('.') != std::string::npos) {
      EXPECT_TRUE(reads(static_cast<double>(count) * 1e-9, row.printed)) << row.run << " " << count;
      continue;
    }
    std::string digits = row.printed;
    std::erase(digits, ',');
    EXPECT_EQ(std::to_string(count), digits) << row.run;
  }
}

TEST(Published, StatesOfZeroReadAsPrintedInAll54Cases) {
  EXPECT_EQ(published_states().size(), 54u);
  std::map<std::pair<int64_t, int64_t>, double> bytes;
  for (const PublishedStates& row : published_states()) {
    const auto [place, fresh] = bytes.try_emplace({row.zero, row.ranks}, 0.0);
    if (fresh) place->second = state_bytes(row.zero, row.ranks);
    const double gb = place->second * row.parameters * 1e-9;
    EXPECT_TRUE(reads(gb, row.printed))
        << gb << " for " << row.printed << ", ZeRO-" << row.zero << " on " << row.ranks;
  }
}

TEST(Published, AValueReadsWithItsLastDigitCutOrRounded) {
  EXPECT_TRUE(reads(4187.5, "4187"));
  EXPECT_TRUE(reads(4187.5, "4188"));
  EXPECT_TRUE(reads(1.875, "1.88"));
  EXPECT_FALSE(reads(1.889, "1.87"));
  EXPECT_FALSE(reads(30.3, "30.1"));
}

TEST(Published, QuickRowsAreNear) {
  for (const auto& [run, cluster] :
       {std::pair("GPT 7.5 B", "dgx_a100"), std::pair("MPT 7b", "dgx_a100"),
        std::pair("GPT 22 B, full recompute", "dgx_a100")}) {
    const PublishedTime& row = row_called(run, cluster);
    EXPECT_LT(std::abs(predict(row).error(row)), 0.12) << run;
  }
}

TEST(Published, TheMlpOnEightGpusIsLaunchBoundAndAGptIsNot) {
  const PublishedTime& row = row_called("MLP", "raven");
  const PredictedTime predicted = predict(row);
  EXPECT_TRUE(predicted.launch_bound);
  EXPECT_TRUE(braid::test::contains(published_line(row, predicted), "launch-bound"));
  EXPECT_FALSE(predict(row_called("GPT 1.7 B", "dgx_a100")).launch_bound);
}

}  // namespace
}  // namespace braid::plan
