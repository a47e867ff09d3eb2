// SPDX-License-Identifier: BSD-3-Clause
// Whole runs through the trainer: one loss curve in every layout, also where a run goes on in
// another one from its checkpoint.
#include "ranks/axes.h"
#include "train/atlas.h"
#include "train/run.h"

namespace braid::test {
namespace {

using nn::ModelName;

const std::string gpt_curve = R"(
seed: 3
model: {name: gpt, vocabulary: 37, sequence: 13, layers: 4, heads: 4, width: 24, dropout: 0.1}
data: {kind: synthetic, input_shape: [13], target_shape: [13], classes: 37, samples: 40, workers: 0}
train: {steps: 8, global_batch: 5, micro_batch: 2, loss: cross_entropy, device: cpu, precision: fp64, clip: 1, ema: 0.9}
optimizer: {name: adamw, lr: 3e-3, eps: 1e-4, weight_decay: 0.1}
checkpoint: {every: 4}
valid: {every: 4}
report: {to: []}
)";

// The `mp` config of the weather benchmark at a tiny width: bf16 there, fp64 here.
const std::string vit_curve = R"(
seed: 3
model: {name: vit, image: [32, 48], patch: 8, channels_in: 4, channels_out: 4, width: 32, depth: 2, heads: 4, dropout: 0.1}
data: {kind: synthetic, input_shape: [4, 32, 48], samples: 24, workers: 0}
train: {steps: 6, global_batch: 4, loss: relative_l2, device: cpu, precision: fp64}
optimizer: {name: adam, lr: 1e-3, eps: 1e-4}
checkpoint: {at_end: false, every: 100}
report: {to: []}
)";

struct Curve {
  std::map<int64_t, double> losses;
  std::vector<ValidRecord> valids;
};

// One rank of a run; what the first one records comes back.
Curve run_rank(train::RunOptions options, const train::Ranks& ranks, bool resume) {
  options.train.divergence.every = 2;  // also: what should be alike is
  train::Splits splits = train::open_splits(options);
  splits.valid = splits.train;
  const auto& shape = splits.train->spec().target.shape;
  if (shape.size() == 3)  // a region: weights of rows from its latitudes
    splits.valid = std::make_shared<train::Atlas>(splits.train,
                                                  train::weather_info(static_cast<int>(shape[1])));
  const auto model = train::build_model(options, ranks);
  train::Collect sink;
  const TempDir temp;
  Log log({.rank = ranks.mesh.rank() > 0 ? 1 : 0, .file = (temp / "log").string(), .quiet = true});
  train::Trainer trainer(*model, splits, options, sink, log, ranks);
  if (resume) {
    EXPECT_TRUE(trainer.resume());
  }
  trainer.fit();
  Curve curve{.losses = {}, .valids = sink.valids};
  for (const StepRecord& record : sink.steps) curve.losses[record.step] = record.loss;
  return curve;
}

Curve run_layout(train::RunOptions run, const std::string& words, bool resume = false) {
  std::istringstream all(words);
  for (std::string word; std::getline(all, word, '_');) apply_word(run, word);
  if (ranks_in(run) == 1) return run_rank(run, {}, resume);
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  Curve first;
  on_ranks(ranks_in(run), [&](comm::Group world) {
    const Curve mine = run_rank(run, ranks_of(world, run), resume);
    if (world.rank() == 0) first = mine;
  });
  return first;
}

void expect_curve(const Curve& mine, const Curve& whole, int64_t from, int64_t to) {
  for (int64_t step = from; step <= to; ++step) {
    ASSERT_TRUE(mine.losses.contains(step)) << step;
    EXPECT_NEAR(mine.losses.at(step), whole.losses.at(step), 1e-10 * whole.losses.at(step))
        << "step " << step;
  }
}

void expect_valid(const ValidRecord& mine, const ValidRecord& whole) {
  EXPECT_EQ(mine.samples, whole.samples);
  EXPECT_NEAR(mine.loss, whole.loss, 1e-10 * whole.loss);
  ASSERT_EQ(mine.metrics.size(), whole.metrics.size());
  for (const auto& [name, value] : whole.metrics)
    EXPECT_NEAR(mine.metrics.at(name), value, 1e-8 * std::abs(value) + 1e-12) << name;
}

struct Move {
  std::string name, before, after;
};

class AxesMoves : public testing::TestWithParam<Move> {};

// Four steps in one layout, four in another: weights, momentum, averages and the loader's place go
// along.
TEST_P(AxesMoves, GoOnWhereTheyWere) {
  const Move& move = GetParam();
  const TempDir dir;
  train::RunOptions run = train::run_of(gpt_curve);
  if ((move.before + move.after).find("expert") != std::string::npos) apply_word(run, "moe4");
  run.run.dir = (dir / "whole").string();
  const Curve whole = run_layout(run, "data1");
  run.run.dir = (dir / "moved").string();
  train::RunOptions half = run;
  half.train.steps = 4;
  const Curve before = run_layout(half, move.before);
  expect_curve(before, whole, 1, 4);
  const Curve after = run_layout(run, move.after, /*resume=*/true);
  expect_curve(after, whole, 5, 8);
  expect_valid(before.valids.at(0), whole.valids.at(0));
  expect_valid(after.valids.at(0), whole.valids.at(1));
  expect_valid(after.valids.back(), whole.valids.back());  // the test data, at the end
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AxesMoves,
    testing::Values(Move{"OneToTensor", "data1", "tensor4"},
                    Move{"TensorToOne", "tensor4", "data1"},
                    Move{"PipelineToTensor", "pipeline2_shard2_z3", "tensor2_context2"},
                    Move{"TensorToPipeline", "tensor2_shard2_z2", "pipeline4"},
                    Move{"AllToShards", "pipeline2_tensor2_shard2_z3", "shard3_z3"},
                    Move{"ShardsToAll", "shard3_z1", "pipeline2_tensor2_context2"},
                    Move{"ZeroBubbleToRing", "pipeline2_zbv_shard2_z3", "context4_ring"},
                    Move{"ExpertsToPipeline", "expert2_shard2_z3", "pipeline2_expert2"},
                    Move{"ExpertsToTensor", "expert4", "expert2_tensor2"}),
    [](const auto& info) { return info.param.name; });

TEST(AxesCurves, OfTheWeatherModelAreThoseOfOneProcess) {
  const TempDir dir;
  train::RunOptions run = train::run_of(vit_curve);
  run.run.dir = (dir / "one").string();
  const Curve whole = run_layout(run, "data1");
  for (const char* words : {"tensor4", "context4", "tensor2_context2_data2",
                            "tensor2_context2_ring_data2", "pipeline2_context2_shard2_z2"}) {
    SCOPED_TRACE(words);
    run.run.dir = (dir / words).string();
    const Curve mine = run_layout(run, words);
    expect_curve(mine, whole, 1, 6);
    expect_valid(mine.valids.back(), whole.valids.back());
  }
}

// Ranks that see the same samples find the same bad one; the others hear of it.
TEST(AxesCurves, EndAtABadSampleInEveryLayout) {
  const TempDir dir;
  for (const char* words : {"tensor2_pipeline2", "context2_shard2_z3"}) {
    train::RunOptions run =
        train::run_of(vit_curve, {"train.look_for_nan=true", "run.dir=" + (dir / words).string()});
    std::istringstream all(words);
    for (std::string word; std::getline(all, word, '_');) apply_word(run, word);
    on_ranks(ranks_in(run), [&](comm::Group world) {
      const train::Ranks ranks = ranks_of(world, run);
      const auto model = train::build_model(run, ranks);
      train::Splits splits = train::open_splits(run);
      splits.train = std::make_shared<train::Spoilt>(splits.train, 3);
      train::Collect sink;
      Log log({.file = (dir / fmt::format("log{}", world.rank())).string(), .quiet = true});
      train::Trainer trainer(*model, splits, run, sink, log, ranks);
      const std::string text = error_of([&] { trainer.fit(); });
      EXPECT_TRUE(contains(text, "the first bad value is in the input batch") ||
                  (ranks.mesh.batch_ranks() > 1 && contains(text, "in another rank")))
          << text;
    });
  }
}

TEST(AxesCurves, OfFp16SkipTheSameSteps) {
  const TempDir dir;
  train::RunOptions run = train::run_of(
      gpt_curve, {"train.precision=fp16", "train.ema=0", "optimizer.scaler.initial=1e9"});
  run.run.dir = (dir / "one").string();
  const Curve whole = run_layout(run, "data1");
  for (const char* words : {"tensor2_pipeline2", "context2_shard2_z3"}) {
    SCOPED_TRACE(words);
    run.run.dir = (dir / words).string();
    const Curve mine = run_layout(run, words);
    for (const auto& [step, loss] : whole.losses)
      EXPECT_NEAR(mine.losses.at(step), loss, 0.02 * loss) << "step " << step;
  }
}

}  // namespace
}  // namespace braid::test
