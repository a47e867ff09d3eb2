// SPDX-License-Identifier: BSD-3-Clause
// Where the blocks of models still sum the gradient of a bias in a pass of its own.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/memory/recompute.h"
#include "braid/train/measure.h"
#include "support/small_runs.h"

namespace braid {
namespace {

int64_t column_sums(train::RunOptions run, memory::Again what) {
  run.memory.recompute = what;
  const memory::OperatorLog log = train::log_step(run);
  return std::count_if(log.operators().begin(), log.operators().end(),
                       [](const auto& op) { return op.name == "braid::column_sum"; });
}

TEST(BiasSums, ComeOnTheWayInAllBlocks) {
  for (const char* precision : {"fp32", "bf16"}) {
    const train::RunOptions gpt = test::small_run(nn::ModelName::gpt, precision);
    EXPECT_EQ(column_sums(gpt, memory::Again::none), 3);    // q, k, v; the end of the last block
    EXPECT_EQ(column_sums(gpt, memory::Again::blocks), 4);  // the end of each block
    train::RunOptions vit = test::small_run(nn::ModelName::vit, precision);
    vit.model.vit.dropout = 0;
    EXPECT_EQ(column_sums(vit, memory::Again::none), 8);  // q, k, v apart; the head, too
  }
}

}  // namespace
}  // namespace braid
