// SPDX-License-Identifier: BSD-3-Clause
// train.micro_batch: auto and memory.recompute: budget, by dry runs that the real runs confirm.
#include "braid/train/fit.h"

#include <gtest/gtest.h>

#include "braid/core/units.h"
#include "train/run.h"

namespace braid::train {
namespace {

using memory::Again;
using test::contains;
using test::error_of;

const std::string gpt_deep = R"(
seed: 3
model: {name: gpt, vocabulary: 64, sequence: 16, layers: 4, heads: 4, width: 32}
data: {kind: synthetic, input_shape: [16], target_shape: [16], classes: 64, samples: 36, workers: 0, sequence: 16}
train: {steps: 4, global_batch: 12, loss: cross_entropy, device: cpu, precision: fp64}
optimizer: {name: adam, lr: 1e-3}
checkpoint: {at_end: false}
report: {to: []}
)";

const std::string swinir_deep = R"(
seed: 3
model: {name: swinir, image: [16, 16], scale: 2, width: 16, depths: [2, 2], heads: [2, 2], window: 4}
data: {kind: synthetic, input_shape: [3, 16, 16], target_shape: [3, 32, 32], samples: 8, workers: 0}
train: {steps: 2, global_batch: 4, loss: l1, device: cpu}
report: {to: []}
)";

struct Fit : testing::Test {
  RunOptions options(const std::string& yaml, std::vector<std::string> sets) {
    sets.push_back("run.dir=" + (dir / std::to_string(runs++)).string());
    return run_of(yaml, sets);
  }
  static std::string micro(int64_t size) { return "train.micro_batch=" + std::to_string(size); }
  static std::string limit(int64_t bytes) { return "memory.limit=" + std::to_string(bytes); }
  int64_t peak(const std::string& yaml, const std::vector<std::string>& sets) {
    return predict_peak(options(yaml, sets), {}).bytes;
  }

  test::TempDir dir;
  int runs = 0;
};

TEST_F(Fit, WordsOfTheMicroBatch) {
  EXPECT_EQ(options(gpt_deep, {}).train.micro_batch, std::nullopt);
  EXPECT_EQ(options(gpt_deep, {"train.micro_batch=all"}).train.micro_batch, std::nullopt);
  const RunOptions automatic = options(gpt_deep, {"train.micro_batch=auto"});
  EXPECT_EQ(automatic.train.micro_batch, 0);
  EXPECT_TRUE(contains(resolved_yaml(automatic), "micro_batch: auto"));
  EXPECT_TRUE(contains(resolved_yaml(options(gpt_deep, {})), "micro_batch: all"));
  EXPECT_TRUE(contains(error_of([&] { options(gpt_deep, {"train.micro_batch=0"}); }),
                       "must be at least 1"));
  EXPECT_TRUE(contains(error_of([&] { options(gpt_deep, {"train.micro_batch=some"}); }),
                       "is not an integer or auto or all"));
}

// A step that is cut short for its dry run has the peak of the whole one.
TEST_F(Fit, ShortenedStepsPeakAlike) {
  for (const int64_t size : {1, 2, 5}) {
    const RunOptions run = options(gpt_deep, {micro(size), "train.global_batch=23"});
    EXPECT_EQ(predict_peak(run, {}).bytes, measure(run).second_step.peak.bytes) << size;
  }
}

// Not for 5, 5 and 2 samples: 7 and 5 have the same peak, that of the second pass beside gradients.
TEST_F(Fit, AutoIsTheLargestThatFits) {
  for (const int64_t size : {1, 7, 12}) {
    const int64_t room = peak(gpt_deep, {micro(size)});
    const Fitted fitted =
        fit_to_memory(options(gpt_deep, {limit(room), "train.micro_batch=auto"}), {});
    EXPECT_EQ(fitted.options.train.micro_batch, size);
    ASSERT_EQ(fitted.lines.size(), 1u);
    EXPECT_TRUE(contains(fitted.lines[0], "micro_batch auto: " + std::to_string(size) +
                                              " of 12 samples, predicted peak " +
                                              to_text(Bytes{room}) + " of " + to_text(Bytes{room}) +
                                              " (memory.limit)"));
  }
}

TEST_F(Fit, AutoKeepsTheResultAndStaysWithinTheLimit) {
  const auto losses = [&](const std::vector<std::string>& sets) {
    const RunOptions run = options(gpt_deep, sets);
    const Fitted fitted = fit_to_memory(run, {});
    TestRun trained(fitted.options);
    trained.trainer.fit();
    std::vector<double> all;
    for (const StepRecord& step : trained.sink.steps) all.push_back(step.loss);
    return all;
  };
  const std::vector<double> whole = losses({});
  const std::vector<double> parts =
      losses({limit(peak(gpt_deep, {micro(5)}) + 7), "train.micro_batch=auto"});
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], parts[i], 1e-12) << i;
}

TEST_F(Fit, NotEvenOneSampleFits) {
  const int64_t room = peak(gpt_deep, {micro(1)}) - 1;
  testing::internal::CaptureStderr();
  const std::string text = error_of(
      [&] { fit_to_memory(options(gpt_deep, {limit(room), "train.micro_batch=auto"}), {}); });
  EXPECT_TRUE(contains(text, "not even one sample fits"));
  EXPECT_TRUE(contains(text, "fix: --set "));
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "with these changes"));
}

TEST_F(Fit, AutoWithoutDryRunsIsRefused) {
  const RunOptions run = options(gpt_deep, {"train.micro_batch=auto"});
  EXPECT_TRUE(contains(error_of([&] { TestRun trained(run); }), "train.micro_batch = auto"));
}

struct Swept {
  int64_t peak;
  double flops;
};

// From what everything computed again takes to what nothing does.
std::vector<Swept> sweep(const RunOptions& run, int points) {
  RunOptions all = run;
  all.memory.recompute = Again::blocks;
  const int64_t least = predict_peak(all, {}).bytes, most = predict_peak(run, {}).bytes;
  EXPECT_LT(least, most);
  std::vector<Swept> swept;
  for (int i = 0; i <= points; ++i) {
    const int64_t budget = least + (most - least) * i / points;
    const RecomputePlan plan = recompute_plan(run, {}, budget);
    EXPECT_TRUE(plan.fits) << budget;
    RunOptions planned = run;
    planned.memory.recompute = Again::budget;
    planned.memory.plan = plan.blocks;
    const Predicted predicted = predict_peak(planned, {});
    EXPECT_EQ(predicted.bytes, plan.peak);
    EXPECT_LE(plan.peak, budget);
    swept.push_back({plan.peak, predicted.recomputed_flops});
  }
  return swept;
}

void expect_monotone(const std::vector<Swept>& swept) {
  for (size_t i = 1; i < swept.size(); ++i) EXPECT_LE(swept[i].flops, swept[i - 1].flops) << i;
  EXPECT_GT(swept.front().flops, 0);
  EXPECT_EQ(swept.back().flops, 0);
  std::set<double> different;
  for (const Swept& point : swept) different.insert(point.flops);
  EXPECT_GE(different.size(), 3u);
}

TEST_F(Fit, ABudgetSweepIsMonotoneForGpt) {
  expect_monotone(sweep(options(gpt_deep, {"model.sequence=64", "data.sequence=64"}), 8));
}

TEST_F(Fit, ABudgetSweepIsMonotoneForSwinir) {
  expect_monotone(sweep(options(swinir_deep, {}), 8));
}

TEST_F(Fit, ABudgetTooSmallIsRefusedWithTheMiss) {
  RunOptions run = options(gpt_deep, {"memory.recompute=blocks"});
  const int64_t least = predict_peak(run, {}).bytes;
  run.memory.recompute = Again::budget;
  run.memory.budget.count = least - 1000;
  const std::string text = error_of([&] { fit_to_memory(run, {}); });
  EXPECT_TRUE(contains(text, "with all blocks computed again a step still takes"));
  EXPECT_TRUE(contains(text, "more than the " + with_commas(least - 1000)));
}

// The real run under the plan takes the bytes of the dry one and has the losses of a run without.
TEST_F(Fit, ABudgetHoldsInTraining) {
  const RunOptions plain = options(gpt_deep, {});
  RunOptions all = plain;
  all.memory.recompute = Again::blocks;
  const int64_t budget = (predict_peak(all, {}).bytes + predict_peak(plain, {}).bytes) / 2;
  RunOptions run = plain;
  run.memory.recompute = Again::budget;
  run.memory.budget.count = budget;
  const Fitted fitted = fit_to_memory(run, {});
  EXPECT_FALSE(fitted.options.memory.plan.empty());
  const Measured dry = measure(fitted.options), real = measure(fitted.options, {.dry = false});
  EXPECT_EQ(dry.second_step.peak.bytes, real.second_step.peak.bytes);
  EXPECT_LE(real.second_step.peak.bytes, budget);
  TestRun with(fitted.options), without(plain);
  with.trainer.fit();
  without.trainer.fit();
  expect_same_bits(with.weights(), without.weights());
}

}  // namespace
}  // namespace braid::train
