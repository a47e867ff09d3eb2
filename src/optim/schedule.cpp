// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "braid/core/error.h"

namespace braid::optim {
namespace {

// Value of the schedule when `done` of `total` steps lie behind; `epoch` whole epochs of the run
// do.
double scheduled(const ScheduleOptions& options, double lr, double progress, int64_t epoch) {
  switch (options.schedule) {
    case Schedule::constant:
      return lr;
    case Schedule::cosine:
      return options.final_lr +
             (lr - options.final_lr) * 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Schedule::linear:
      return lr + (options.final_lr - lr) * progress;
    case Schedule::exponential:
      return lr * std::pow(options.gamma, static_cast<double>(epoch));
  }
  throw InternalError({.what = fmt::format("schedule {}", static_cast<int>(options.schedule)),
                       .why = "it is none of the four that exist",
                       .fix = "report this"});
}

double part_done(int64_t done, int64_t total) {
  if (total <= 0) return 1;
  return std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
}

void expect_known_end(const ScheduleOptions& options, const ScheduleContext& context) {
  const bool ends = options.schedule == Schedule::cosine || options.schedule == Schedule::linear;
  if (!ends || context.total_steps > 0) return;
  throw ConfigError(
      {.what = fmt::format("optimizer.schedule = {} with no number of steps",
                           options.schedule == Schedule::cosine ? "cosine" : "linear"),
       .why = "this schedule ends at the last step, so it must know which one that is",
       .fix = "give train.steps or train.epochs, or set optimizer.schedule=constant"});
}

}  // namespace

double lr_at(const ScheduleOptions& options, const ScheduleContext& context, int64_t step) {
  expect_known_end(options, context);
  const int64_t epoch = (step - context.first_step) / std::max<int64_t>(context.steps_per_epoch, 1);
  const double rise = context.lr * static_cast<double>(step + 1) /
                      static_cast<double>(std::max<int64_t>(options.warmup, 1));
  if (options.warmup_kind == Warmup::under) {
    const double value =
        scheduled(options, context.lr, part_done(step, context.total_steps), epoch);
    return options.warmup > 0 ? std::min(rise, value) : value;
  }
  if (step < options.warmup) return rise;
  const double progress = part_done(step - options.warmup, context.total_steps - options.warmup);
  return scheduled(options, context.lr, progress, epoch);
}

double scaled_lr(const ScheduleOptions& options, double lr, int64_t global_batch) {
  if (options.scale_lr == LrScaling::none) return lr;
  if (options.base_batch <= 0)
    throw ConfigError(
        {.what = fmt::format("optimizer.scale_lr is set, but optimizer.base_batch = {}",
                             options.base_batch),
         .why = "the rule scales lr by global batch / base batch",
         .fix = "set optimizer.base_batch to the global batch for which lr was found"});
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(options.base_batch);
  return lr * (options.scale_lr == LrScaling::linear ? ratio : std::sqrt(ratio));
}

}  // namespace braid::optim
