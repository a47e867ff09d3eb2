// SPDX-License-Identifier: BSD-3-Clause
// The dry run of a step of a mixture of experts takes, to the byte, what the real step takes on the
// CPU, and counts the same operations.
#include <gtest/gtest.h>

#include "braid/train/measure.h"
#include "support/small_runs.h"

namespace braid {
namespace {

train::RunOptions moe_run(nn::ModelName model, const nn::MoeOptions& moe) {
  train::RunOptions run = test::small_run(model);
  run.model.gpt.moe = run.model.llama.moe = moe;
  return run;
}

void expect_dry_as_real(const train::RunOptions& run) {
  const train::Measured real = train::measure(run, {.dry = false});
  const train::Measured dry = train::measure(run, {.dry = true});
  EXPECT_EQ(dry.backward.without_scratch.bytes, real.backward.without_scratch.bytes);
  EXPECT_EQ(dry.second_step.without_scratch.bytes, real.second_step.without_scratch.bytes);
  EXPECT_EQ(dry.second_step.left, real.second_step.left);
  EXPECT_EQ(dry.evaluation.without_scratch.bytes, real.evaluation.without_scratch.bytes);
}

TEST(DryMixture, TakesTheBytesOfARealStepWithACapacity) {
  for (const auto model : {nn::ModelName::gpt, nn::ModelName::llama})
    for (const auto router : {nn::Router::switch_top_1, nn::Router::gshard, nn::Router::top_k,
                              nn::Router::noisy_top_k, nn::Router::expert_choice}) {
      SCOPED_TRACE(testing::Message() << test::name_of(model) << static_cast<int>(router));
      expect_dry_as_real(
          moe_run(model, {.experts = 4, .router = router, .capacity = 1.25, .shared = 1}));
    }
}

TEST(DryMixture, TakesTheBytesOfARealStepWithoutOne) {
  for (const auto model : {nn::ModelName::gpt, nn::ModelName::llama})
    expect_dry_as_real(moe_run(model, {.experts = 4}));
}

// However tokens are spread over experts, the products of all of them are as many.
TEST(DryMixture, CountsTheOperationsOfTheTable) {
  const train::RunOptions dense = moe_run(nn::ModelName::llama, {});
  const train::RunOptions mixed = moe_run(nn::ModelName::llama, {.experts = 4, .hidden = 48});
  const double flops = train::measure(dense, {.dry = true}).log.flops();
  // Two experts of half the width cost what the MLP costs. The router takes 2 * width * experts a
  // token, forward once and backward twice; the sum by gates 2 * choices * width, and once again
  // for the gradient of the gates.
  const double tokens = 2.0 * 4 * 32;  // layers, samples, tokens
  const double router = 3 * 2 * tokens * 64 * 4, gates = 2 * 2 * tokens * 2 * 64;
  EXPECT_EQ(train::measure(mixed, {.dry = true}).log.flops() - flops, router + gates);
}

}  // namespace
}  // namespace braid
