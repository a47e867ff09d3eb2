// SPDX-License-Identifier: BSD-3-Clause
// Activations on the host under ZeRO-3, tensor parallelism and pipelines, with values computed
// again: the bits of the same layout without.
#include "ranks/axes.h"

namespace braid::test {
namespace {

using nn::ModelName;

class OffloadOnRanks : public testing::TestWithParam<AxesCase> {};

StepOutcome outcome_of(const train::RunOptions& run, const data::Batch& batch,
                       const comm::Group& world) {
  const train::Ranks ranks = ranks_of(world, run);
  return run_steps(run, share_of(batch, ranks.mesh.batch_rank(), ranks.mesh.batch_ranks()), ranks);
}

TEST_P(OffloadOnRanks, ChangesNoBit) {
  train::RunOptions run = run_for(GetParam());
  run.train.global_batch = 8;
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  const data::Batch batch = random_batch(run, 8);
  on_ranks(ranks_in(run), [&](comm::Group world) {
    const StepOutcome plain = outcome_of(run, batch, world);
    for (const auto again : {memory::Again::none, memory::Again::blocks}) {
      train::RunOptions offload = run;
      offload.memory = {.recompute = again, .offload = {"activations"}, .pack_masks = true};
      const StepOutcome mine = outcome_of(offload, batch, world);
      EXPECT_EQ(mine.loss, plain.loss);
      for (const auto& [name, grad] : plain.gradients)
        EXPECT_TRUE(mine.gradients.at(name).equal(grad)) << name << " rank " << world.rank();
      for (const auto& [name, weight] : plain.weights)
        EXPECT_TRUE(mine.weights.at(name).equal(weight)) << name << " rank " << world.rank();
    }
  });
}

TEST_P(OffloadOnRanks, TakesDryWhatItTakes) {
  train::RunOptions run = run_for(GetParam(), "fp32");
  run.train.global_batch = 8;
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  run.memory = {.recompute = memory::Again::blocks, .offload = {"activations"}};
  const int world = ranks_in(run);
  const auto peak = [&](bool dry) {
    return train::measure(run, {.dry = dry, .world = world, .rank = world - 1})
        .second_step.without_scratch.bytes;
  };
  // The group that stands in for other ranks makes a tensor of their number: 12 bytes.
  EXPECT_NEAR(peak(true), peak(false), 12);
}

INSTANTIATE_TEST_SUITE_P(Layouts, OffloadOnRanks,
                         testing::Values(AxesCase{ModelName::gpt, "shard2_z3"},
                                         AxesCase{ModelName::gpt, "pipeline2_micro2_shard2_z3"},
                                         AxesCase{ModelName::vit, "tensor2_data2"},
                                         AxesCase{ModelName::llama, "context2_micro2"}),
                         [](const auto& info) { return case_text(info.param); });

}  // namespace
}  // namespace braid::test
