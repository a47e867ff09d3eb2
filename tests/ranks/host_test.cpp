// SPDX-License-Identifier: BSD-3-Clause
// Optimizer and weights on the host in layouts of many ranks: the bits of the same layout without,
// and a dry step that takes the bytes of the real one.
#include "ranks/axes.h"
#include "support/dry_real.h"

namespace braid::test {
namespace {

using nn::ModelName;

struct HostCase {
  std::string words;
  std::string offload;
  const char* precision = "fp32";
  bool narrow = false;  // weights in bf16, masters in fp32
};

std::string host_case_text(const HostCase& given) {
  return given.words + "_" + given.offload + "_" + given.precision +
         (given.narrow ? "_narrow" : "");
}

train::RunOptions host_run(const HostCase& given, bool offloaded) {
  train::RunOptions run = run_for({ModelName::gpt, given.words}, given.precision);
  run.optimizer.rule = {.name = optim::Algorithm::adamw, .lr = 1e-3, .weight_decay = 0.1};
  if (given.narrow) run.train.param = "bf16";
  if (offloaded) run.memory = memory_words(given.offload);
  return run;
}

struct Trained {
  Values weights;
  std::map<std::string, Piece> pieces;
};

Trained trained(const train::RunOptions& run, const data::Batch& whole, const comm::Group& world) {
  const train::Ranks ranks = ranks_of(world, run);
  const data::Batch batch = share_of(whole, ranks.mesh.batch_rank(), ranks.mesh.batch_ranks());
  const auto model = train::build_model(run, ranks);
  train::StepParts parts(*model, run, c10::kCPU, ranks);
  for (int step = 0; step < 5; ++step) {
    parts.rounds.begin({.weight = weight_of(batch)});
    parts.run(batch, {.training = true, .seed = 5, .step = step}, run.optimizer.rule.lr);
  }
  Trained result;
  for (const Param& param : parts.stored()) {
    result.weights[param.name] = param.tensor.detach().flatten().clone();
    result.pieces[param.name] = param.piece;
  }
  return result;
}

class HostLayouts : public testing::TestWithParam<HostCase> {};

TEST_P(HostLayouts, TrainTheSameBits) {
  const train::RunOptions plain = host_run(GetParam(), false), host = host_run(GetParam(), true);
  const data::Batch batch = random_batch(plain, 8);
  on_ranks(ranks_in(plain), [&](comm::Group world) {
    const Values expected = trained(plain, batch, world).weights;
    const Values got = trained(host, batch, world).weights;
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, weight] : expected)
      EXPECT_TRUE(got.at(name).equal(weight)) << name << " of rank " << world.rank();
  });
}

TEST_P(HostLayouts, DryPeakIsTheRealOne) {
  train::RunOptions run = host_run(GetParam(), true);
  run.train.global_batch = 8;
  const int world = ranks_in(run);
  for (const int rank : {0, world - 1}) expect_dry_is_real(run, {.world = world, .rank = rank});
}

INSTANTIATE_TEST_SUITE_P(
    Offload, HostLayouts,
    testing::Values(
        HostCase{"data2", "optimizer"}, HostCase{"data2_micro2", "optimizer", "bf16"},
        HostCase{"data2", "optimizer", "fp16"},
        HostCase{"data2_micro2", "optimizer", "bf16_masters"},
        HostCase{"shard2_z2_micro2", "optimizer", "bf16_masters"},
        HostCase{"data2", "optimizer", "fp32", true},
        HostCase{"shard2_z1", "optimizer", "fp32", true}, HostCase{"shard2_z2_micro2", "optimizer"},
        HostCase{"shard2_z3", "optimizer", "fp32", true}, HostCase{"tensor2", "optimizer"},
        HostCase{"tensor2_shard2_z2", "optimizer", "bf16"},
        HostCase{"pipeline2_micro2", "optimizer"}, HostCase{"shard2_z3_micro2", "parameters"},
        HostCase{"shard2_z3", "parameters_optimizer", "fp32", true},
        HostCase{"data2_shard2_z3_micro2", "parameters", "bf16"},
        HostCase{"tensor2_shard2_z3", "parameters"},
        HostCase{"pipeline2_shard2_z3_micro2", "parameters"}),
    [](const auto& info) { return host_case_text(info.param); });

// Late updates are the same on every layout.
TEST(HostLate, UpdatesDoNotDependOnTheLayout) {
  HostCase given{"data2", "optimizer", "fp64"};
  train::RunOptions alone = host_run(given, true);
  alone.memory.delay = 2;
  const data::Batch batch = random_batch(alone, 8);
  for (const char* words : {"shard2_z2", "shard2_z3"}) {
    given.words = words;
    train::RunOptions shared = host_run(given, true), visiting = shared;
    shared.memory.delay = visiting.memory.delay = 2;
    if (shared.train.zero == 3) visiting.memory.offload = {"optimizer", "parameters"};
    on_ranks(2, [&](comm::Group world) {
      const Values expected = trained(alone, batch, world).weights;
      for (const train::RunOptions& run : {shared, visiting}) {
        const Trained mine = trained(run, batch, world);
        expect_close(mine.weights, expected, mine.pieces, 1e-12, "weight");
      }
    });
  }
}

}  // namespace
}  // namespace braid::test
