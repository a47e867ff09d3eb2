// SPDX-License-Identifier: BSD-3-Clause
// The step of one rank of any layout without data takes the bytes of that with data, and nobody
// else is needed for either.
#include "ranks/axes.h"
#include "support/dry_real.h"

namespace braid::test {
namespace {

using nn::ModelName;

class AxesDry : public testing::TestWithParam<AxesCase> {};

TEST_P(AxesDry, PeakIsTheRealOne) {
  train::RunOptions run = run_for(GetParam(), "fp32");
  run.train.global_batch = 8;
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  const int world = ranks_in(run);
  for (const int rank : {0, world - 1}) {
    SCOPED_TRACE(rank);
    expect_dry_is_real(run, {.world = world, .rank = rank});
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AxesDry,
    testing::Values(AxesCase{ModelName::gpt, "tensor2"}, AxesCase{ModelName::gpt, "context4_ring"},
                    AxesCase{ModelName::gpt, "pipeline4_micro2"},
                    AxesCase{ModelName::llama, "pipeline2_tensor2_shard2_z3_micro2"},
                    AxesCase{ModelName::vit, "tensor2_context2_data2"},
                    AxesCase{ModelName::swinir, "context2_shard2_z2"}),
    [](const auto& info) { return case_text(info.param); });

// 16200 tokens of the full-size model, without its data, its memory or other ranks.
TEST(AxesDryRun, OfTheWeatherModelWithSmallPatches) {
  train::RunOptions run =
      train::load_run(std::string(BRAID_SOURCE_DIR) + "/configs/vit.yaml:mp_patch4");
  run.train.global_batch = 1;
  run.train.local_batch.reset();
  std::map<std::string, int64_t> peaks;
  for (const char* words : {"data1", "tensor4", "context4", "tensor2_context2"}) {
    train::RunOptions spread = run;
    spread.mesh = {};
    std::istringstream all(words);
    for (std::string word; std::getline(all, word, '_');) apply_word(spread, word);
    const int world = ranks_in(spread);
    peaks[words] =
        train::measure(spread, {.world = world, .rank = world - 1}).second_step.peak.bytes;
  }
  for (const char* words : {"tensor4", "context4", "tensor2_context2"}) {
    EXPECT_GT(peaks[words], 0);
    EXPECT_LT(peaks[words], peaks["data1"] / 2) << words;
  }
}

}  // namespace
}  // namespace braid::test
