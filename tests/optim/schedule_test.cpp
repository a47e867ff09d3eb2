// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "support/expect.h"

namespace braid::optim {
namespace {

const ScheduleContext weather{.lr = 5e-4, .total_steps = 30000, .steps_per_epoch = 2372};

TEST(Schedule, CosineHasTheLoggedValuesOfTheWeatherRun) {
  const ScheduleOptions cosine{.schedule = Schedule::cosine};
  EXPECT_EQ(lr_at(cosine, weather, 0), 5e-4);
  EXPECT_NEAR(lr_at(cosine, weather, 2372), 4.92327e-4, 5e-10);
  EXPECT_NEAR(lr_at(cosine, weather, 23720), 5.21408e-5, 5e-11);
  EXPECT_NEAR(lr_at(cosine, weather, 30000), 0, 1e-18);
  EXPECT_NEAR(lr_at(cosine, weather, 40000), 0, 1e-18);
}

TEST(Schedule, WarmupUnderTakesTheLowerOfBoth) {
  const ScheduleOptions options{
      .schedule = Schedule::cosine, .warmup = 1000, .warmup_kind = Warmup::under};
  const ScheduleOptions plain{.schedule = Schedule::cosine};
  EXPECT_DOUBLE_EQ(lr_at(options, weather, 0), 5e-4 / 1000);
  EXPECT_DOUBLE_EQ(lr_at(options, weather, 499), 2.5e-4);
  EXPECT_DOUBLE_EQ(lr_at(options, weather, 2372), lr_at(plain, weather, 2372));
}

TEST(Schedule, WarmupBeforeShiftsTheSchedule) {
  const ScheduleOptions options{.schedule = Schedule::cosine, .warmup = 100, .final_lr = 1e-5};
  const ScheduleContext context{.lr = 1e-3, .total_steps = 1100};
  EXPECT_DOUBLE_EQ(lr_at(options, context, 0), 1e-5);
  EXPECT_DOUBLE_EQ(lr_at(options, context, 99), 1e-3);
  EXPECT_DOUBLE_EQ(lr_at(options, context, 100), 1e-3);
  EXPECT_DOUBLE_EQ(lr_at(options, context, 600), 1e-5 + 0.5 * (1e-3 - 1e-5));
  EXPECT_DOUBLE_EQ(lr_at(options, context, 1100), 1e-5);
}

TEST(Schedule, ExponentialFallsOnceAnEpoch) {
  const ScheduleOptions options{.schedule = Schedule::exponential};
  const ScheduleContext context{.lr = 8e-4, .total_steps = 0, .steps_per_epoch = 10};
  EXPECT_DOUBLE_EQ(lr_at(options, context, 9), 8e-4);
  EXPECT_DOUBLE_EQ(lr_at(options, context, 10), 7.76e-4);
  EXPECT_DOUBLE_EQ(lr_at(options, context, 20), 8e-4 * 0.97 * 0.97);
}

TEST(Schedule, LinearAndConstant) {
  const ScheduleContext context{.lr = 1.0, .total_steps = 10};
  const ScheduleOptions linear{.schedule = Schedule::linear, .final_lr = 0.5};
  EXPECT_DOUBLE_EQ(lr_at(linear, context, 0), 1.0);
  EXPECT_DOUBLE_EQ(lr_at(linear, context, 5), 0.75);
  EXPECT_DOUBLE_EQ(lr_at(linear, context, 10), 0.5);
  EXPECT_DOUBLE_EQ(lr_at({.warmup = 4}, context, 1), 0.5);
  EXPECT_DOUBLE_EQ(lr_at({.warmup = 4}, context, 1'000'000), 1.0);
}

TEST(Schedule, CosineWithoutAnEndIsRefused) {
  const std::string text =
      test::error_of([] { lr_at({.schedule = Schedule::cosine}, {.lr = 1}, 0); });
  EXPECT_TRUE(test::contains(text, "schedule = cosine with no number of steps"));
  EXPECT_TRUE(test::contains(text, "train.steps"));
}

TEST(LrScaling, LinearRule) {
  const ScheduleOptions options{.scale_lr = LrScaling::linear, .base_batch = 32};
  EXPECT_DOUBLE_EQ(scaled_lr(options, 1e-3, 256), 8e-3);
  EXPECT_DOUBLE_EQ(scaled_lr({}, 1e-3, 256), 1e-3);
}

TEST(LrScaling, SquareRootRuleGivesTheWeatherTable) {
  const ScheduleOptions options{.scale_lr = LrScaling::sqrt, .base_batch = 16};
  const std::pair<int64_t, double> table[] = {{16, 5e-4},     {32, 7.07e-4},  {64, 1e-3},
                                              {128, 1.41e-3}, {256, 2e-3},    {512, 2.83e-3},
                                              {1024, 4e-3},   {2048, 5.66e-3}};
  for (const auto& [batch, lr] : table)
    EXPECT_NEAR(scaled_lr(options, 5e-4, batch), lr, 0.005 * lr) << batch;
}

TEST(LrScaling, NeedsABase) {
  EXPECT_TRUE(
      test::contains(test::error_of([] { scaled_lr({.scale_lr = LrScaling::sqrt}, 1e-3, 64); }),
                     "optimizer.base_batch"));
}

TEST(OptimizerOptions, AreReadFromAConfig) {
  const auto options = read_options<ScheduleOptions>(Config::parse(
      "{schedule: cosine, warmup: 10, warmup_kind: under, scale_lr: sqrt, base_batch: 16}"));
  EXPECT_EQ(options.schedule, Schedule::cosine);
  EXPECT_EQ(options.warmup_kind, Warmup::under);
  EXPECT_EQ(options.scale_lr, LrScaling::sqrt);
}

}  // namespace
}  // namespace braid::optim
