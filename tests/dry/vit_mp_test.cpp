// SPDX-License-Identifier: BSD-3-Clause
// The course's mp_patch4 (16,200 tokens, width 1536), of which one rank of four is run dry.
#include <gtest/gtest.h>

#include "braid/core/units.h"
#include "braid/train/measure.h"

namespace braid {
namespace {

train::Measured measured(const std::vector<std::string>& layout, int64_t world) {
  std::vector<std::string> sets = {"train.global_batch=1"};
  sets.insert(sets.end(), layout.begin(), layout.end());
  const train::RunOptions run =
      train::load_run(std::string(BRAID_SOURCE_DIR) + "/configs/vit.yaml:mp_patch4", sets);
  return train::measure(run, {.device = {c10::kCUDA, 0}, .dry = true, .world = world, .rank = 0});
}

TEST(VitMpPatch4, RunsDryOnFourRanks) {
  const train::Measured one = measured({}, 1);
  const std::vector<std::vector<std::string>> layouts = {
      {"mesh.tensor=4", "parallel.sequence=false"},
      {"mesh.tensor=4"},
      {"mesh.context=4"},
      {"mesh.context=4", "parallel.context=ring"},
      {"mesh.context=4", "parallel.context=all_to_all"},
      {"mesh.tensor=2", "mesh.context=2"}};
  for (const auto& layout : layouts) {
    const train::Measured four = measured(layout, 4);
    SCOPED_TRACE(layout.back());
    EXPECT_LT(four.second_step.peak.bytes, one.second_step.peak.bytes * 4 / 5)
        << to_text(Bytes{four.second_step.peak.bytes}) << " of "
        << to_text(Bytes{one.second_step.peak.bytes});
    // Embedding and head are small beside the blocks, whose work is shared out.
    EXPECT_NEAR(four.log.flops() / one.log.flops(), 0.25, 0.01);
  }
}

}  // namespace
}  // namespace braid
