// SPDX-License-Identifier: BSD-3-Clause
// Published memory figures beside dry runs of the operators that made them.
#include "braid/plan/published_memory.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <map>

#include "support/expect.h"

namespace braid::plan {
namespace {

constexpr double published_gib = 1 << 30;

TEST(PublishedMemory, EveryRowOfSwinirIsWithinThreePercent) {
  int within = 0;
  for (const PublishedMemory& row : published_memory()) {
    if (row.options.model.name != nn::ModelName::swinir) continue;
    SCOPED_TRACE(row.run);
    const PredictedMemory predicted = predict(row);
    if (!row.gib) {
      EXPECT_FALSE(fits(row, predicted));
      continue;
    }
    EXPECT_TRUE(fits(row, predicted));
    EXPECT_NEAR(static_cast<double>(compared(row, predicted)) / published_gib / *row.gib, 1, 0.03);
    EXPECT_NEAR(static_cast<double>(predicted.reserved) / published_gib / row.reserved_gib, 1,
                0.04);
    ++within;
  }
  EXPECT_EQ(within, 5);
}

TEST(PublishedMemory, TheWideVitFitsWhereItDid) {
  int rows = 0;
  for (const PublishedMemory& row : published_memory()) {
    if (row.options.model.name != nn::ModelName::vit) continue;
    SCOPED_TRACE(row.run + " on " + row.gpu);
    const PredictedMemory predicted = predict(row);
    EXPECT_EQ(fits(row, predicted), row.gib.has_value());
    EXPECT_LT(predicted.allocated, predicted.reserved);
    ++rows;
  }
  EXPECT_EQ(rows, 3);
}

// The recipes of the repository are those runs, but for one key.
TEST(PublishedMemory, RecipesTakeTheSameWithOneKey) {
  const std::string configs = std::string(BRAID_SOURCE_DIR) + "/configs/";
  const std::vector<std::string> sets = {"model.kernels=reference", "parallel.sequence=false"};
  const std::map<std::string, std::string> recipes = {
      {"SwinIR, one slice, fp16", "swinir.yaml:full_amp"},
      {"ViT mp, fp16, 4 replicas", "vit.yaml:mp"}};
  for (const PublishedMemory& row : published_memory()) {
    const auto recipe = recipes.find(row.run);
    if (recipe == recipes.end()) continue;
    PublishedMemory same = row;
    same.options = train::load_run(configs + recipe->second, sets);
    EXPECT_EQ(predict(same).allocated, predict(row).allocated) << row.run;
  }
}

TEST(PublishedMemory, TheTableHasALineForEachRow) {
  const std::string table = published_memory_table();
  std::fputs(table.c_str(), stderr);
  for (const PublishedMemory& row : published_memory())
    EXPECT_TRUE(braid::test::contains(table, "\n" + row.run + " "));
}

}  // namespace
}  // namespace braid::plan
