// SPDX-License-Identifier: BSD-3-Clause
// What is computed again and what lies on the host, alone and together: a step of one process
// without data takes the bytes of one with data, for every model. Every pair of choices is here for
// some model; all of them for all models are in tests/ranks.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/memory_choices.h"
#include "support/small_runs.h"

namespace braid::test {
namespace {

class MemoryChoices : public testing::TestWithParam<ChoiceCase> {};

TEST_P(MemoryChoices, DryTakesWhatRealTakes) { expect_choice(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Cover, MemoryChoices, testing::ValuesIn(choice_cover()),
                         [](const auto& info) { return choice_text(info.param); });

// In half precision the host has master weights; losses are scaled.
TEST(MemoryChoicesIn, OtherPrecisions) {
  for (const char* precision : {"bf16", "bf16_params"})
    for (const char* words : {"optimizer", "blocks_optimizer_activations"}) {
      SCOPED_TRACE(std::string(precision) + " " + words);
      train::RunOptions run = tiny_run(nn::ModelName::gpt, precision);
      run.memory = memory_words(words);
      expect_dry_is_real(run);
    }
}

// Gradients of several passes meet on the host.
TEST(MemoryChoicesIn, MicroBatches) {
  for (const char* words : {"optimizer", "blocks2_optimizer", "activations"}) {
    SCOPED_TRACE(words);
    train::RunOptions run = tiny_run(nn::ModelName::llama, "fp32");
    run.train.micro_batch = 2;
    run.memory = memory_words(words);
    expect_dry_is_real(run);
  }
}

// On a GPU both places count: what leaves the device is on the host.
TEST(MemoryChoicesIn, TheHostHasWhatTheDeviceHasNot) {
  const auto measured = [](const char* words) {
    train::RunOptions run = small_run(nn::ModelName::gpt);
    run.memory = memory_words(words);
    return train::measure(run, {.device = {c10::kCUDA, 0}}).second_step;
  };
  const train::Phase kept = measured("kept"), optimizer = measured("optimizer"),
                     activations = measured("activations");
  EXPECT_LT(optimizer.before, kept.before / 2);  // the weights alone
  EXPECT_GT(optimizer.host, kept.host + kept.before - optimizer.before);
  EXPECT_LT(activations.peak.bytes, kept.peak.bytes);
  EXPECT_GE(activations.host - kept.host, kept.peak.bytes - activations.peak.bytes);
}

}  // namespace
}  // namespace braid::test
