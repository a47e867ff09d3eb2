// SPDX-License-Identifier: BSD-3-Clause
// Learning rates by step, as pure functions: a resume needs no state.
//
//   optim::ScheduleOptions s{.schedule = optim::Schedule::cosine, .warmup = 100};
//   lr = optim::lr_at(s, {.lr = 5e-4, .total_steps = 30000, .steps_per_epoch = 2372}, step);
//   // step 0 is the first update
#pragma once
#include <cstdint>

#include "braid/core/options.h"

namespace braid::optim {

enum class Schedule { constant, cosine, linear, exponential };
enum class Warmup {
  before,  // lr * (t+1)/warmup, then the schedule runs over the remaining steps
  under    // min(lr * (t+1)/warmup, schedule(t)): the schedule is not shifted
};
enum class LrScaling { none, linear, sqrt };

struct ScheduleOptions {
  Schedule schedule = Schedule::constant;
  int64_t warmup = 0;
  Warmup warmup_kind = Warmup::before;
  double final_lr = 0;  // where cosine and linear end
  double gamma = 0.97;  // exponential: factor an epoch (of the run, not shifted by a warm-up)
  LrScaling scale_lr = LrScaling::none;  // lr * (global batch / base_batch), or its square root
  int64_t base_batch = 0;
};
void describe(Fields& fields, ScheduleOptions& options);

struct ScheduleContext {
  double lr = 0;
  int64_t total_steps = 0;
  int64_t steps_per_epoch = 1;
  int64_t first_step = 0;  // of the first epoch; not 0 where other batches came before
};
// Throws ConfigError if cosine or linear do not know where to end (total_steps = 0). Past the end
// it stays at the last value.
double lr_at(const ScheduleOptions& options, const ScheduleContext& context, int64_t step);
// Throws ConfigError if a rule is asked for without base_batch.
double scaled_lr(const ScheduleOptions& options, double lr, int64_t global_batch);

}  // namespace braid::optim
