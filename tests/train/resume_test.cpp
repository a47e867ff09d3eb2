// SPDX-License-Identifier: BSD-3-Clause
// A run that was stopped and went on is the run that was not stopped, to the last bit.
#include <gtest/gtest.h>

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

RunOptions in(RunOptions options, const fs::path& dir) {
  options.run.dir = dir.string();
  return options;
}

void stop_after(TestRun& run, int64_t step, int signal = SIGUSR1) {
  run.sink.on_step = [=](const StepRecord& record) {
    if (record.step == step) raise(signal);
  };
}

void expect_same_steps(const std::vector<StepRecord>& unbroken,
                       const std::vector<StepRecord>& got) {
  ASSERT_FALSE(got.empty());
  for (const StepRecord& record : got) {
    const StepRecord& other = unbroken.at(static_cast<size_t>(record.step - 1));
    EXPECT_EQ(record.loss, other.loss) << "step " << record.step;
    EXPECT_EQ(record.lr, other.lr) << "step " << record.step;
    EXPECT_EQ(record.epoch, other.epoch) << "step " << record.step;
    EXPECT_EQ(record.grad_norm, other.grad_norm) << "step " << record.step;
    EXPECT_EQ(record.loss_scale, other.loss_scale) << "step " << record.step;
    EXPECT_EQ(record.skipped, other.skipped) << "step " << record.step;
  }
}

void expect_same_valids(const TestRun& unbroken, const TestRun& second) {
  for (const ValidRecord& record : second.sink.valids) {
    const auto other = std::find_if(
        unbroken.sink.valids.begin(), unbroken.sink.valids.end(),
        [&](const ValidRecord& v) { return v.step == record.step && v.split == record.split; });
    ASSERT_NE(other, unbroken.sink.valids.end()) << record.step;
    EXPECT_EQ(record.loss, other->loss);
    EXPECT_EQ(record.metrics, other->metrics);
  }
  for (const EpochRecord& record : second.sink.epochs) {
    const auto other = std::find_if(unbroken.sink.epochs.begin(), unbroken.sink.epochs.end(),
                                    [&](const EpochRecord& e) { return e.epoch == record.epoch; });
    ASSERT_NE(other, unbroken.sink.epochs.end());
    EXPECT_EQ(record.train_loss, other->train_loss) << "epoch " << record.epoch;
    EXPECT_EQ(record.steps, other->steps);
  }
}

void expect_bit_exact(const RunOptions& options, const std::vector<int64_t>& stops) {
  const test::TempDir dir;
  TestRun unbroken(in(options, dir / "unbroken"));
  const EndRecord whole_end = unbroken.trainer.fit();
  for (const int64_t stop : stops) {
    SCOPED_TRACE(testing::Message() << "stopped after step " << stop);
    const RunOptions broken = in(options, dir / std::to_string(stop));
    {
      TestRun first(broken);
      stop_after(first, stop);
      const EndRecord end = first.trainer.fit();
      EXPECT_EQ(end.reason, "signal");
      EXPECT_EQ(end.step, stop);
      expect_same_steps(unbroken.sink.steps, first.sink.steps);
    }
    TestRun second(broken);
    ASSERT_TRUE(second.trainer.resume());
    const EndRecord end = second.trainer.fit();
    EXPECT_EQ(second.sink.info.first_step, stop);
    EXPECT_EQ(second.sink.steps.front().step, stop + 1);
    EXPECT_EQ(end.step, whole_end.step);
    EXPECT_EQ(end.reason, "steps");
    EXPECT_EQ(end.metrics, whole_end.metrics);
    expect_same_steps(unbroken.sink.steps, second.sink.steps);
    expect_same_valids(unbroken, second);
    expect_same_bits(unbroken.weights(), second.weights());
  }
}

// 5 is the end of an epoch, 7 lies within one.
TEST(Resume, DropoutAdamEmaClip) {
  expect_bit_exact(run_of(mlp_run, {"train.ema=0.9", "train.clip=0.5", "optimizer.schedule=cosine",
                                    "optimizer.warmup=3", "train.micro_batch=5"}),
                   {1, 5, 7, 11});
}

TEST(Resume, KeptLastBatches) {  // 3 steps an epoch: 32, 32, 6
  expect_bit_exact(run_of(mlp_run, {"train.last_batch=keep", "train.global_batch=32"}), {3, 4, 5});
}

TEST(Resume, SgdWithMomentum) {
  expect_bit_exact(run_of(mlp_run, {"optimizer.name=sgd", "optimizer.momentum=0.9"}), {4});
}

TEST(Resume, ScaledLossOfFp16) {
  const RunOptions options =
      run_of(mlp_run, {"train.precision=fp16", "train.clip=1", "optimizer.scaler.initial=1.0e+7",
                       "optimizer.scaler.interval=2"});
  expect_bit_exact(options, {2, 7, 9});
  const test::TempDir dir;
  TestRun run(in(options, dir / "run"));
  run.trainer.fit();
  std::set<bool> kinds;  // some steps were skipped and some were not
  for (const StepRecord& record : run.sink.steps) kinds.insert(record.skipped);
  EXPECT_EQ(kinds.size(), 2u);
}

TEST(Resume, Bf16WithMasters) {
  for (const char* precision : {"train.precision=bf16_params", "train.precision=bf16_masters"})
    expect_bit_exact(run_of(mlp_run, {precision}), {7});
}

TEST(Resume, ReaderThreads) {
  expect_bit_exact(run_of(mlp_run, {"data.workers=2", "data.queue=3"}), {5, 8});
}

TEST(Resume, VitAndGpt) {
  expect_bit_exact(run_of(vit_run, {"model.dropout=0.1"}), {3});
  expect_bit_exact(run_of(gpt_run, {"model.dropout=0.1", "valid.every=2"}), {3});
}

// 70 points in batches of 14 or 7: what was seen counts, not how many steps it took.
TEST(Resume, EpochsAreThoseOfTheDataAlsoWithAnotherBatch) {
  const test::TempDir dir;
  const auto options = [&](const std::string& batch, const std::string& epochs) {
    return in(run_of(mlp_run, {"train.steps=0", "train.global_batch=" + batch,
                               "train.epochs=" + epochs, "optimizer.schedule=exponential"}),
              dir / "run");
  };
  const auto go_on = [&](const std::string& batch, const std::string& epochs, int64_t end_step) {
    TestRun run(options(batch, epochs));
    run.trainer.resume();
    const EndRecord end = run.trainer.fit();
    EXPECT_EQ(end.reason, "epochs");
    EXPECT_EQ(end.step, end_step);
    EXPECT_EQ(run.sink.info.total_steps, end_step);
    for (const EpochRecord& record : run.sink.epochs)
      EXPECT_DOUBLE_EQ(record.lr, 1e-2 * std::pow(0.97, record.epoch + 1)) << record.step;
    return run.sink.epochs.size();
  };
  EXPECT_EQ(go_on("14", "2", 10), 2u);
  EXPECT_EQ(go_on("7", "4", 10 + 20), 2u);
  EXPECT_EQ(go_on("35", "5", 30 + 2), 1u);
  EXPECT_EQ(go_on("7", "3", 32), 0u);  // more lie behind
  TestRun whole(in(run_of(mlp_run, {"train.steps=36", "train.whole_epochs=true"}), dir / "run"));
  whole.trainer.resume();
  EXPECT_EQ(whole.trainer.fit().step, 32);  // 4 of the 5 steps of an epoch of 14
}

// The signal comes with the last step: all is done but the epoch's validation.
TEST(Resume, StoppedAtTheLastStep) {
  const test::TempDir dir;
  const RunOptions options = in(run_of(mlp_run), dir / "run");
  {
    TestRun first(options);
    stop_after(first, 12, SIGTERM);
    EXPECT_EQ(first.trainer.fit().reason, "signal");
    EXPECT_EQ(first.sink.valids.size(), 2u);  // of the two whole epochs
  }
  TestRun second(options);
  ASSERT_TRUE(second.trainer.resume());
  const EndRecord end = second.trainer.fit();
  EXPECT_EQ(end.reason, "steps");
  EXPECT_TRUE(second.sink.steps.empty());
  ASSERT_EQ(second.sink.epochs.size(), 1u);
  EXPECT_EQ(second.sink.epochs[0].epoch, 2);
  EXPECT_EQ(second.sink.epochs[0].steps, 2);
  EXPECT_TRUE(end.metrics.contains("accuracy"));
}

// Early stop remembers how long there was no improvement.
TEST(Resume, PatienceGoesOn) {
  const test::TempDir dir;
  const RunOptions options = in(
      run_of(mlp_run, {"train.steps=50", "valid.patience=3", "valid.min_delta=10"}), dir / "run");
  {
    TestRun first(options);
    stop_after(first, 12);
    first.trainer.fit();
  }
  TestRun second(options);
  ASSERT_TRUE(second.trainer.resume());
  const EndRecord end = second.trainer.fit();
  EXPECT_EQ(end.reason, "early_stop");
  EXPECT_EQ(end.step, 20);  // best at 5, none at 10, 15, 20
}

TEST(Resume, WithoutACheckpointStartsAndSaysSo) {
  const test::TempDir dir;
  TestRun run(in(run_of(mlp_run), dir / "none"));
  EXPECT_FALSE(run.trainer.resume());
  EXPECT_TRUE(contains(run.lines(), "no checkpoint in"));
  EXPECT_EQ(run.trainer.fit().step, 12);
}

TEST(Resume, BrokenNewestFallsBackAndSaysSo) {
  const test::TempDir dir;
  const RunOptions options = in(run_of(mlp_run), dir / "run");
  TestRun first(options);
  first.trainer.fit();
  const fs::path newest = dir / "run/checkpoints/step-00000012/model.safetensors";
  ASSERT_TRUE(fs::exists(newest));
  std::ofstream(newest, std::ios::in | std::ios::out | std::ios::ate).put('x');
  TestRun second(options);
  ASSERT_TRUE(second.trainer.resume());
  EXPECT_TRUE(contains(second.lines(), "checkpoint skipped: step-00000012: model.safetensors"));
  EXPECT_TRUE(contains(second.lines(), "step-00000010 at step 10"));
  EXPECT_EQ(second.trainer.fit().step, 12);
  ASSERT_EQ(second.sink.steps.size(), 2u);
  expect_same_steps(first.sink.steps, second.sink.steps);
  expect_same_bits(first.weights(), second.weights());
}

TEST(Resume, AnotherModelOrSeedIsRefused) {
  const test::TempDir dir;
  TestRun(in(run_of(mlp_run), dir / "run")).trainer.fit();
  TestRun wider(in(run_of(mlp_run, {"model.hidden=[16, 9]"}), dir / "run"));
  EXPECT_TRUE(contains(error_of([&] { wider.trainer.resume(); }),
                       "these weights belong to a model with other sizes"));
  TestRun other(in(run_of(mlp_run, {"seed=4"}), dir / "run"));
  EXPECT_TRUE(contains(error_of([&] { other.trainer.resume(); }), "has seed 3, this run has 4"));
}

TEST(StopSignals, TheCallersHandlersComeBack) {
  struct sigaction mine = {}, now = {};
  mine.sa_handler = SIG_IGN;
  struct sigaction before = {};
  sigaction(SIGTERM, &mine, &before);
  const test::TempDir dir;
  TestRun run(in(run_of(mlp_run), dir / "run"));
  run.trainer.fit();
  sigaction(SIGTERM, &before, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace braid::train
