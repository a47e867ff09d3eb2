// SPDX-License-Identifier: BSD-3-Clause
// Every layout of the data and shard axes computes what one process computes: loss, gradients and
// updated weights.
#include <fmt/format.h>

#include "ranks/layouts.h"

namespace braid::test {
namespace {

using nn::ModelName;

constexpr int64_t samples = 10;  // 5 5, 4 3 3, 3 3 2 2

train::RunOptions run_of(ModelName model, const Layout& layout, const std::string& precision) {
  train::RunOptions run = small_run(model, precision);
  run.train.global_batch = samples;
  run.train.zero = layout.zero;
  run.train.keep_gathered = layout.keep;
  if (layout.shard > 0) run.mesh.shard = layout.shard;
  // Momentum and decay show in the weights; Adam would hide a factor and blow up noise.
  run.optimizer.rule = {
      .name = optim::Algorithm::sgd, .lr = 0.05, .weight_decay = 0.1, .momentum = 0.9};
  return run;
}

class Equivalence : public testing::TestWithParam<std::tuple<int, ModelName>> {};

TEST_P(Equivalence, OfAnyNumberOfRanksAndPasses) {
  const Layout& layout = layouts[std::get<0>(GetParam())];
  train::RunOptions run = run_of(std::get<1>(GetParam()), layout, "fp64");
  const data::Batch batch = random_batch(run, samples);
  const StepOutcome whole = run_steps(run, batch, {});
  for (const int ranks : {2, 3, 4}) {
    if (layout.shard == 2 && ranks != 4) continue;  // hybrid: 2 x 2
    for (const int64_t passes : {1, 3}) {
      const int64_t longest = (samples + ranks - 1) / ranks;
      run.train.micro_batch = (longest + passes - 1) / passes;
      on_ranks(ranks, [&](comm::Group world) {
        SCOPED_TRACE(fmt::format("rank {} of {}, {} passes", world.rank(), ranks, passes));
        const train::Ranks together = ranks_of(world, run);
        const StepOutcome mine = run_steps(run, share_of(batch, world.rank(), ranks), together);
        expect_same(mine, whole, 1e-12);
        expect_all_elements(mine, whole, together);
      });
    }
  }
}

class TwoRanks : public Equivalence {};

// a + b = b + a in IEEE: the sum of two ranks has no order.
TEST_P(TwoRanks, AreBitEqualToTwoHalves) {
  const Layout& layout = layouts[std::get<0>(GetParam())];
  train::RunOptions run = run_of(std::get<1>(GetParam()), layout, "fp64");
  run.train.clip = 0;  // the norm of pieces is added in another order
  const data::Batch batch = random_batch(run, samples);
  run.train.micro_batch = samples / 2;
  const StepOutcome halves = run_steps(run, batch, {});
  run.train.micro_batch.reset();
  on_ranks(2, [&](comm::Group world) {
    const StepOutcome mine = run_steps(run, share_of(batch, world.rank(), 2), ranks_of(world, run));
    expect_same(mine, halves, 0);
  });
}

TEST_P(Equivalence, OfPoliciesOfBf16WithTheirOwnReference) {
  const Layout& layout = layouts[std::get<0>(GetParam())];
  for (const char* precision : {"bf16", "bf16_masters"}) {
    SCOPED_TRACE(precision);
    train::RunOptions run = run_of(std::get<1>(GetParam()), layout, precision);
    const data::Batch batch = random_batch(run, samples);
    const int ranks = layout.shard == 2 ? 4 : 2;
    const StepOutcome whole = run_steps(run, batch, {});
    on_ranks(ranks, [&](comm::Group world) {
      const StepOutcome mine =
          run_steps(run, share_of(batch, world.rank(), ranks), ranks_of(world, run));
      expect_same(mine, whole, 0.03);
    });
  }
}

const auto models = testing::Values(ModelName::mlp, ModelName::vit, ModelName::swinir,
                                    ModelName::gpt, ModelName::llama);
const auto case_name = [](const auto& info) {
  return std::string(layouts[std::get<0>(info.param)].name) + "_" +
         name_of(std::get<1>(info.param));
};

INSTANTIATE_TEST_SUITE_P(Layouts, Equivalence, testing::Combine(testing::Range(0, 6), models),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Layouts, TwoRanks, testing::Combine(testing::Range(0, 5), models),
                         case_name);  // without 2 x 2

class ProcessEquivalence : public testing::TestWithParam<int> {};

TEST_P(ProcessEquivalence, OfEveryModel) {
  const Layout& layout = layouts[GetParam()];
  const int ranks = layout.shard == 2 ? 4 : 3;
  on_processes(ranks, [&](comm::Group world) {
    for (const ModelName model :
         {ModelName::mlp, ModelName::vit, ModelName::swinir, ModelName::gpt, ModelName::llama}) {
      SCOPED_TRACE(name_of(model));
      train::RunOptions run = run_of(model, layout, "fp64");
      const data::Batch batch = random_batch(run, samples);
      const StepOutcome whole = run_steps(run, batch, {});
      run.train.micro_batch = 2;
      expect_same(run_steps(run, share_of(batch, world.rank(), ranks), ranks_of(world, run)), whole,
                  1e-12);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ProcessEquivalence, testing::Range(0, 6),
                         [](const auto& info) { return layouts[info.param].name; });

}  // namespace
}  // namespace braid::test
