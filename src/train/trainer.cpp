// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "train/finite.h"
#include "train/trainer_impl.h"

namespace braid::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool Trainer::Impl::out_of_budget() {
  if (!reason.empty()) return true;
  if (total_steps > 0 && step >= total_steps) reason = options.train.steps > 0 ? "steps" : "epochs";
  if (options.train.time && seconds_since(started) >= options.train.time->count) reason = "time";
  if (signals.asked()) reason = "signal";
  return !reason.empty();
}

void Trainer::Impl::train_on(const data::Batch& batch) {
  const double lr = optim::lr_at(options.optimizer.schedule, schedule, step);
  const nn::Pass pass{.training = true, .seed = static_cast<uint64_t>(options.seed), .step = step};
  if (options.train.look_for_nan) complain_of_bad_values(batch, pass);
  StepResult result = one_step.run(batch, pass, lr);
  if (ema) ema->update();
  ++step;

  StepRecord record;
  record.step = step;
  record.epoch = batch.epoch;
  record.lr = lr;
  record.samples = batch.samples;
  record.tokens = batch.samples * data.train->spec().tokens;
  record.data_wait = batch.wait;
  record.seconds = seconds_since(last_step_end);
  record.memory = memory_in_use();
  record.tflops = flops_per_sample * static_cast<double>(batch.samples) / record.seconds / 1e12;
  if (scaler)
    record.loss_scale =
        scaler->scale().is_cpu() ? scaler->scale().item<double>() : std::optional<double>();
  last_step_end = Clock::now();
  epoch_seconds += record.seconds;
  recorder.add(std::move(record), std::move(result));
}

// The step would spread a bad value over all weights: look while it can still be found.
void Trainer::Impl::complain_of_bad_values(const data::Batch& batch, const nn::Pass& pass) {
  const at::NoGradGuard no_grad;
  const at::Tensor loss =
      nn::loss(options.train.loss, model.forward(batch.input, pass), batch.target);
  if (std::isfinite(loss.item<double>())) return;
  const std::string culprit = first_not_finite(model, batch, pass);
  throw NotFiniteError(
      {.what = fmt::format("the loss is {} at step {}: the first bad value is in {}",
                           loss.item<double>(), step + 1,
                           culprit.empty() ? "the loss itself" : culprit),
       .why = "a NaN or an infinity arose there",
       .fix = culprit.find("batch") != std::string::npos
                  ? "find the sample with --set data.check_finite=true, or run braid data check"
                  : "lower optimizer.lr, set train.clip=1, or use precision bf16 instead of fp16"});
}

void Trainer::Impl::end_epoch(int64_t epoch) {
  recorder.flush();
  EpochRecord record;
  record.epoch = epoch;
  record.step = step;
  record.steps = recorder.steps;
  record.train_loss =
      recorder.steps > 0 ? recorder.loss_sum / static_cast<double>(recorder.steps) : std::nan("");
  record.lr = optim::lr_at(options.optimizer.schedule, schedule, step);
  record.seconds = epoch_seconds;
  record.samples_per_second =
      static_cast<double>(recorder.steps * global_batch) / std::max(epoch_seconds, 1e-9);
  recorder.loss_sum = 0;
  recorder.steps = 0;
  epoch_seconds = 0;
  sink.epoch(record);
  if (options.valid.every == 0) validate(epoch);
  if (options.checkpoint.every == 0) save();
  last_step_end = Clock::now();
}

void Trainer::Impl::between_steps(const data::Batch& batch) {
  const bool validation_due = options.valid.every > 0 && step % options.valid.every == 0;
  const bool checkpoint_due = options.checkpoint.every > 0 && step % options.checkpoint.every == 0;
  if (validation_due) validate(batch.epoch);
  if (checkpoint_due) save();
  if (validation_due || checkpoint_due) last_step_end = Clock::now();
}

void Trainer::Impl::validate(int64_t epoch) {
  if (data.valid == nullptr) return;
  recorder.flush();
  ValidRecord record = evaluate(data::Split::valid);
  record.epoch = epoch;
  record.step = step;
  last_metrics = record.metrics;
  last_metrics["loss"] = record.loss;
  sink.valid(record);
  draw_picture();
  watch_progress();
}

void Trainer::Impl::watch_progress() {
  const ValidOptions& valid = options.valid;
  const auto found = last_metrics.find(valid.metric);
  if (found == last_metrics.end()) throw unknown_metric("valid.metric", valid.metric);
  const double value = valid.highest ? -found->second : found->second;
  if (value < best - valid.min_delta) {
    best = value;
    validations_since_best = 0;
  } else {
    ++validations_since_best;
  }
  if (valid.patience > 0 && validations_since_best >= valid.patience) reason = "early_stop";
}

EndRecord Trainer::Impl::fit() {
  started = Clock::now();
  sink.start(run_info());
  if (options.train.initial_validation && step == 0) validate(0);
  last_step_end = Clock::now();
  while (!out_of_budget()) {
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) continue;  // the end of an epoch; the next call begins another
    train_on(*batch);
    picture_batch = batch;
    between_steps(*batch);
    if (batch->step + 1 == loader.steps_per_epoch()) end_epoch(batch->epoch);
  }
  return finish();
}

EndRecord Trainer::Impl::finish() {
  recorder.flush();
  const bool interrupted = reason == "signal";
  // A run may end within an epoch: what it learned there is validated and recorded too.
  if (!interrupted && recorder.steps > 0) end_epoch(picture_batch->epoch);
  if (options.checkpoint.at_end || interrupted) save();
  EndRecord end;
  end.step = step;
  end.reason = reason;
  end.metrics = last_metrics;
  if (data.test != nullptr && options.valid.test_at_end && !interrupted) {
    ValidRecord test = evaluate(data::Split::test);
    test.split = "test";
    test.step = step;
    sink.valid(test);
    end.metrics["test_loss"] = test.loss;
  }
  end.seconds = seconds_since(started);
  sink.end(end);
  return end;
}

Trainer::Trainer(nn::Model& model, Splits data, RunOptions options, report::Sink& sink, Log& log)
    : impl_(std::make_unique<Impl>(model, std::move(data), std::move(options), sink, log)) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

bool Trainer::resume() { return impl_->resume(); }
EndRecord Trainer::fit() { return impl_->fit(); }
ValidRecord Trainer::evaluate(data::Split split) { return impl_->evaluate(split); }
State Trainer::state() const { return impl_->state(); }
void Trainer::load(const State& state) { impl_->load(state); }

}  // namespace braid::train
