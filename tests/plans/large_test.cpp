// SPDX-License-Identifier: BSD-3-Clause
// The largest recipe on the largest machine, planned here.
#include <gtest/gtest.h>

#include <string>

#include "braid/memory/usage.h"
#include "braid/plan/layout.h"

namespace braid::test {
namespace {

TEST(LargePlan, OfLlama405bOn16384Ranks) {
  train::RunOptions run =
      train::load_run(std::string(BRAID_SOURCE_DIR) + "/configs/llama.yaml:405b");
  run.mesh = {};
  run.mesh.tensor = 8;
  run.mesh.pipeline = 16;
  run.train.zero = 1;
  run.train.local_batch.reset();
  run.train.global_batch = 2048;
  run.train.micro_batch = 1;
  const plan::LayoutRun layout = plan::dry_layout(run, 16384);
  EXPECT_EQ(layout.parameters, 405'853'388'800);
  EXPECT_EQ(layout.world, 16384);
  EXPECT_EQ(layout.kind_of.size(), 16);
  int64_t ranks = 0;
  for (const plan::RankRun& rank : layout.ranks) {
    ranks += rank.like;
    EXPECT_GT(rank.memory.peak.bytes, 0) << rank.name;
    EXPECT_GE(rank.memory.reserved, rank.memory.peak.bytes) << rank.name;
    EXPECT_FALSE(rank.trace.messages.empty()) << rank.name;
  }
  EXPECT_EQ(ranks, 16384);
  // 2 FLOPs forward and 4 backward for each weight but the table of words, and the scores.
  const double weights = 405'853'388'800.0 - 128256.0 * 16384;
  const double scores = 3 * 4 * 126 * 16384.0 * 8192 * layout.tokens;
  EXPECT_NEAR(layout.flops, 6 * weights * layout.tokens + scores, 0.01 * layout.flops);
  EXPECT_LT(memory::peak_rss(), int64_t{4} << 30);
  RecordProperty("seconds", std::to_string(layout.seconds));
  RecordProperty("peak_rss", std::to_string(memory::peak_rss()));
}

}  // namespace
}  // namespace braid::test
