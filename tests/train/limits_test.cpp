// SPDX-License-Identifier: BSD-3-Clause
// How long a run lasts, which learning rate each step has, what fp16 skips, and what is kept.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "support/command.h"
#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

struct Limits : testing::Test {
  TestRun make(const std::string& yaml, std::vector<std::string> sets) {
    sets.push_back("run.dir=" + (dir / "run").string());
    return TestRun(run_of(yaml, sets));
  }
  std::string refusal(const std::string& yaml, const std::vector<std::string>& sets) {
    return error_of([&] { make(yaml, sets).trainer.fit(); });
  }
  test::TempDir dir;
};

// The course's rule: the cosine ends at train.steps, the run at the last whole epoch before it.
TEST_F(Limits, CosineUnderWholeEpochs) {
  TestRun run =
      make(mlp_run, {"train.steps=13", "train.whole_epochs=true", "optimizer.schedule=cosine",
                     "optimizer.warmup=3", "optimizer.warmup_kind=under"});
  const EndRecord end = run.trainer.fit();
  EXPECT_EQ(end.step, 10);
  EXPECT_EQ(end.reason, "steps");
  EXPECT_EQ(run.sink.info.total_steps, 10);
  ASSERT_EQ(run.sink.steps.size(), 10u);
  for (const StepRecord& record : run.sink.steps) {
    const double t = static_cast<double>(record.step - 1);
    const double cosine = 1e-2 * 0.5 * (1 + std::cos(std::numbers::pi * t / 13));
    EXPECT_DOUBLE_EQ(record.lr, std::min(1e-2 * (t + 1) / 3, cosine)) << record.step;
  }
  EXPECT_DOUBLE_EQ(run.sink.epochs.back().lr,
                   1e-2 * 0.5 * (1 + std::cos(std::numbers::pi * 10 / 13)));
}

TEST_F(Limits, WholeEpochsOfNoneAreRefused) {
  const std::string text = refusal(mlp_run, {"train.steps=4", "train.whole_epochs=true"});
  EXPECT_TRUE(contains(text, "train.steps = 4 is less than one epoch of 5 steps"));
  EXPECT_TRUE(contains(text, "--set train.steps=5, or train.whole_epochs=false"));
}

TEST_F(Limits, AnEpochWithoutAStepIsRefused) {
  const std::string text = refusal(mlp_run, {"train.global_batch=71"});
  EXPECT_TRUE(contains(text, "a global batch of 71 from a data set of 70 samples"));
  EXPECT_TRUE(contains(text, "set train.global_batch to at most 70"));
}

TEST_F(Limits, Epochs) {
  TestRun run = make(mlp_run, {"train.steps=0", "train.epochs=3"});
  const EndRecord end = run.trainer.fit();
  EXPECT_EQ(end.step, 15);
  EXPECT_EQ(end.reason, "epochs");
  ASSERT_EQ(run.sink.epochs.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(run.sink.epochs[i].epoch, i);
    EXPECT_EQ(run.sink.epochs[i].steps, 5);
    double sum = 0;
    for (int64_t s = 0; s < 5; ++s) sum += run.sink.steps[i * 5 + s].loss;
    EXPECT_DOUBLE_EQ(run.sink.epochs[i].train_loss, sum / 5);
  }
}

// 70 samples in batches of 32: 32, 32, 6. The mean of the six is a step like the others.
TEST_F(Limits, TheLastBatchCanBeKept) {
  TestRun run = make(mlp_run, {"train.steps=0", "train.epochs=2", "train.global_batch=32",
                               "train.last_batch=keep", "train.micro_batch=4"});
  EXPECT_EQ(run.trainer.fit().step, 6);
  std::vector<int64_t> samples;
  for (const StepRecord& record : run.sink.steps) samples.push_back(record.samples);
  EXPECT_EQ(samples, (std::vector<int64_t>{32, 32, 6, 32, 32, 6}));
  const EpochRecord& epoch = run.sink.epochs[1];
  EXPECT_NEAR(epoch.samples_per_second * epoch.seconds, 70, 1e-6);
}

TEST_F(Limits, TheSmallerOfStepsAndEpochs) {
  EXPECT_EQ(make(mlp_run, {"train.steps=100", "train.epochs=2"}).trainer.fit().reason, "epochs");
  fs::remove_all(dir / "run");
  EXPECT_EQ(make(mlp_run, {"train.steps=7", "train.epochs=2"}).trainer.fit().step, 7);
}

// Saved even though at_end is off: who is stopped by the clock wants to go on.
TEST_F(Limits, Time) {
  TestRun run = make(mlp_run, {"train.steps=0", "train.time=50ms", "checkpoint.at_end=false",
                               "checkpoint.every=1000000"});
  const EndRecord end = run.trainer.fit();
  EXPECT_EQ(end.reason, "time");
  EXPECT_GT(end.step, 0);
  EXPECT_LT(end.seconds, 5);
  EXPECT_EQ(run.sink.info.total_steps, 0);
  ASSERT_EQ(run.sink.events.size(), 1u);
  EXPECT_EQ(run.sink.events[0].step, end.step);
}

TEST_F(Limits, ACosineMustKnowItsEnd) {
  EXPECT_TRUE(
      contains(refusal(mlp_run, {"train.steps=0", "train.time=1s", "optimizer.schedule=cosine"}),
               "optimizer.schedule = cosine with no number of steps"));
}

TEST_F(Limits, LinearRuleScalesTheLearningRate) {
  TestRun run = make(mlp_run, {"optimizer.scale_lr=linear", "optimizer.base_batch=7"});
  run.trainer.fit();
  EXPECT_DOUBLE_EQ(run.sink.steps.front().lr, 2e-2);
}

// A scale beyond what fp16 gradients hold: each step is skipped and halves it, no weight moves.
TEST_F(Limits, Fp16SkipsOverflowAndHalvesTheScale) {
  TestRun run = make(mlp_run, {"train.precision=fp16", "train.steps=3", "train.clip=1",
                               "optimizer.scaler.initial=1.0e+30"});
  const auto before = run.weights();
  run.trainer.fit();
  double scale = static_cast<float>(1e30);
  for (const StepRecord& record : run.sink.steps) {
    EXPECT_TRUE(record.skipped);
    EXPECT_TRUE(std::isfinite(record.loss));
    EXPECT_EQ(record.loss_scale, scale);
    scale /= 2;
  }
  expect_same_bits(before, run.weights());
  EXPECT_EQ(run.sink.epochs[0].steps, 3);  // their losses count all the same
}

TEST_F(Limits, Fp16ComesDownToAScaleThatWorksAndGrowsAgain) {
  TestRun run = make(mlp_run, {"train.precision=fp16", "train.steps=60",
                               "optimizer.scaler.initial=1.0e+8", "optimizer.scaler.interval=20"});
  run.trainer.fit();
  EXPECT_TRUE(run.sink.steps.front().skipped);
  EXPECT_FALSE(run.sink.steps[25].skipped);
  bool grew = false;
  for (size_t i = 1; i < run.sink.steps.size(); ++i)
    grew = grew || *run.sink.steps[i].loss_scale == 2 * *run.sink.steps[i - 1].loss_scale;
  EXPECT_TRUE(grew);
}

// Of 8 checkpoints the newest two and the best one stay; the best is the one of lowest loss.
TEST_F(Limits, KeepsTheNewestAndTheBest) {
  TestRun run = make(mlp_run, {"train.steps=40", "optimizer.lr=0.3", "checkpoint.keep=2",
                               "checkpoint.best=1", "valid.every=5", "checkpoint.every=5"});
  run.trainer.fit();
  ASSERT_EQ(run.sink.valids.size(), 9u);  // the last of them is the test
  const ValidRecord* best = &run.sink.valids[0];
  for (const ValidRecord& valid : run.sink.valids)
    if (valid.split == "valid" && valid.loss < best->loss) best = &valid;
  const checkpoint::Store store(dir / "run/checkpoints");
  EXPECT_EQ(checkpoint::load(store.best()).step, best->step);
  std::set<int64_t> steps = {best->step, 35, 40}, kept;
  for (const fs::path& path : store.list()) kept.insert(checkpoint::load(path).step);
  EXPECT_EQ(kept, steps);
}

// A checkpoint between validations has no metric of its own and is not rated by an older one.
TEST_F(Limits, MetricsBelongToTheStep) {
  TestRun run = make(mlp_run, {"valid.every=4", "checkpoint.every=3", "checkpoint.keep=9"});
  run.trainer.fit();
  for (const fs::path& path : checkpoint::Store(dir / "run/checkpoints").list()) {
    const checkpoint::Snapshot snapshot = checkpoint::load(path);
    EXPECT_EQ(snapshot.metrics.contains("loss"), snapshot.step == 12) << snapshot.step;
  }
}

TEST_F(Limits, UnknownMetricsAreRefusedBeforeTheFirstStep) {
  TestRun run = make(mlp_run, {"checkpoint.metric=acuracy"});
  const std::string text = error_of([&] { run.trainer.fit(); });
  EXPECT_TRUE(run.sink.steps.empty());
  EXPECT_TRUE(contains(text, "checkpoint.metric = acuracy is not a metric of this run"));
  EXPECT_TRUE(contains(text, "validation gives loss, accuracy"));
  EXPECT_TRUE(contains(text, "--set checkpoint.metric=accuracy"));
  EXPECT_TRUE(
      contains(refusal(gpt_run, {"valid.metric=perplexty"}), "--set valid.metric=perplexity"));
}

TEST_F(Limits, PatienceNeedsValidationData) {
  const RunOptions options =
      run_of(mlp_run, {"valid.patience=2", "run.dir=" + (dir / "run").string()});
  Splits splits = open_splits(options);
  splits.valid = nullptr;
  TestRun run(options, splits);
  EXPECT_TRUE(contains(error_of([&] { run.trainer.fit(); }),
                       "valid.patience = 2, but there are no validation data"));
}

TEST_F(Limits, AUsedFolderIsLeftAlone) {
  RunOptions options = run_of(mlp_run, {"run.dir=" + (dir / "run").string()});
  open_session(options, {.quiet = true}).trainer->fit();
  EXPECT_EQ(open_session(options, {.quiet = true}).dir, (dir / "run-2").string());
  EXPECT_TRUE(contains(test::text_of(dir / "run-2/config.yaml"), "run-2"));
  options.run.exists = IfExists::refuse;
  const std::string text = error_of([&] { open_session(options, {.quiet = true}); });
  EXPECT_TRUE(contains(text, "already holds a run"));
  EXPECT_TRUE(contains(text, "--resume"));
  EXPECT_EQ(open_session(options, {.resume = true, .quiet = true}).trainer->fit().step, 12);
}

}  // namespace
}  // namespace braid::train
