// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/trainer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/region.h"
#include "braid/core/units.h"
#include "braid/memory/instruments.h"
#include "braid/train/out_of_memory.h"
#include "train/finite.h"
#include "train/trainer_impl.h"

namespace braid::train {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens or labels that the model does not know end an operator with an index error.
[[noreturn]] void complain_of_index(const data::Batch& batch, const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  const bool index = text.find("out of range") != std::string::npos ||
                     text.find("out of bounds") != std::string::npos;
  const auto largest = [](const at::Tensor& tensor) { return tensor.max().item<int64_t>(); };
  const bool tokens = batch.input.scalar_type() == at::kLong;
  if (!index || batch.target.scalar_type() != at::kLong) throw;
  throw DataError(
      {.what = fmt::format("the data hold {} {}, which the model does not know",
                           tokens ? "token" : "label",
                           std::max(largest(batch.target), tokens ? largest(batch.input) : 0)),
       .why = text.substr(0, text.find('\n')),
       .fix = tokens ? "set model.vocabulary to more than that, or use the data of this model"
                     : "set model.outputs to the number of classes"});
}

}  // namespace

bool Trainer::Impl::out_of_budget() {
  if (!reason.empty()) return true;
  if (options.profile.then_stop && profiler->done()) reason = "profile";
  if (total_steps > 0 && step >= total_steps && !options.profile.then_stop)
    reason = options.train.epochs > 0 && total_steps == step_after(options.train.epochs) ? "epochs"
                                                                                         : "steps";
  const Stop stop = ranks.alone() ? wish() : agreed;
  if (stop == Stop::time) reason = "time";
  if (stop == Stop::signal) reason = "signal";
  return !reason.empty();
}

// Signals and clocks reach ranks at different steps: they leave together after the step in which
// the first of them said so.
Stop Trainer::Impl::wish() const {
  if (signals != nullptr && signals->asked()) return Stop::signal;
  const bool late = options.train.time && seconds_since(started) >= options.train.time->count;
  return late ? Stop::time : Stop::none;
}

void Trainer::Impl::progress(const char* what) const {
  if (ranks.progress) ranks.progress(fmt::format("{} {}", what, step));
}

RankReport Trainer::Impl::report(double weight) const {
  RankReport mine{.weight = weight,
                  .stop = static_cast<double>(wish()),
                  .profile = static_cast<double>(profiler->wish())};
  if (!unsent) return mine;
  mine.seconds = unsent->first.seconds;
  mine.data_wait = unsent->first.data_wait;
  mine.comm_wait = unsent->first.comm_wait;
  return mine;
}

void Trainer::Impl::take_reports() {
  agreed = std::max(agreed, static_cast<Stop>(parts.rounds.stop()));
  profiler->request(static_cast<int64_t>(parts.rounds.profile()));
  if (!unsent) return;
  auto [record, result] = std::move(*unsent);
  unsent.reset();
  for (const RankReport& rank : parts.rounds.reports())
    record.ranks.push_back({rank.seconds, rank.data_wait, rank.comm_wait});
  recorder.add(record, std::move(result));
}

void Trainer::Impl::settle() {
  if (unsent) {
    parts.rounds.begin(report(0));
    take_reports();
  }
  recorder.flush();
}

void Trainer::Impl::train_on(const data::Batch& batch) {
  const double lr = optim::lr_at(options.optimizer.schedule, schedule, step);
  const nn::Pass pass{.training = true, .seed = static_cast<uint64_t>(options.seed), .step = step};
  if (ranks.progress) ranks.progress(fmt::format("step {}", step + 1));
  if (ranks.ledger != nullptr && !profiler->measures())
    ranks.ledger->begin();  // of one step: it stays small
  if (options.train.look_for_nan) look_for_bad_values(batch, pass);
  if (!ranks.alone())
    parts.rounds.begin(report(static_cast<double>(
        std::accumulate(batch.weights.begin(), batch.weights.end(), int64_t{0}))));
  const double waited = ranks.world.waited_seconds();
  parts.eager = !profiler->done();
  StepResult result = run_step(batch, pass, lr);
  tell_of_graph();
  if (!ranks.alone()) take_reports();
  ++step;
  epoch = batch.epoch;

  StepRecord record;
  record.step = step;
  record.epoch = epoch;
  record.lr = lr;
  record.samples = batch.global_samples;
  record.tokens = batch.global_samples * data.train->spec().tokens;
  record.data_wait = batch.wait;
  record.seconds = seconds_since(last_step_end);
  record.memory = memory_in_use();
  record.comm_wait = ranks.world.waited_seconds() - waited;
  record.tflops = flops_per_sample * static_cast<double>(record.samples) / record.seconds / 1e12;
  last_step_end = Clock::now();
  epoch_seconds += record.seconds;
  compare_with_plan(record.seconds);
  if (ranks.alone())
    recorder.add(record, std::move(result));
  else
    unsent.emplace(record, std::move(result));
}

StepResult Trainer::Impl::run_step(const data::Batch& batch, const nn::Pass& pass, double lr) {
  try {
    const bool counted = flops_counted || profiler->measures();
    return counted ? parts.run(batch, pass, lr) : counted_step(batch, pass, lr);
  } catch (const c10::Error& error) {
    complain_of_index(batch, error);
  }
}

// The first step tells what a step costs, for any model.
StepResult Trainer::Impl::counted_step(const data::Batch& batch, const nn::Pass& pass, double lr) {
  memory::OperatorLog operators;
  const memory::Instruments counting({.ledger = ranks.ledger.get(), .log = &operators});
  StepResult result = parts.run(batch, pass, lr);
  if (parts.recompute != nullptr)
    expect_segments(model, options, parts.recompute->counts().segments);
  const at::Tensor flops = at::full({}, operators.flops(), c10::kDouble);
  ranks.control.all_reduce(flops).wait();  // ranks of a model have different parts of it
  flops_per_sample =
      flops.item<double>() / static_cast<double>(batch.input.size(0) * ranks.mesh.batch_ranks());
  flops_counted = true;
  return result;
}

bool Trainer::Impl::any_rank(bool here) const {
  if (ranks.alone()) return here;
  const at::Tensor flag = at::full({}, here ? 1.0 : 0.0, c10::kDouble);
  ranks.control.all_reduce(flag, comm::Op::max).wait();
  return flag.item<double>() != 0;
}

// The step would spread a bad value over all weights: look while it can still be found. In
// micro-batches, as the step does: the whole batch may not fit into memory. All ranks look
// together: their weights may have to be gathered for it.
void Trainer::Impl::look_for_bad_values(const data::Batch& batch, nn::Pass pass) {
  const int64_t samples = batch.input.size(0);
  const int64_t micro = options.train.micro_batch.value_or(samples);
  for (int64_t begin = 0; begin < samples; begin += micro) {
    data::Batch part;
    part.input = batch.input.narrow(0, begin, std::min(micro, samples - begin));
    part.target = batch.target.narrow(0, begin, part.input.size(0));
    pass.first_sample = batch.first + begin;
    const Forward forward = [&](const at::Tensor& input) {
      return parts.forward(model, input, pass);
    };
    const std::string bad = bad_value_in(part, forward);
    if (!any_rank(!bad.empty())) continue;
    const std::string culprit = first_not_finite(model, parts.params, part, forward);
    // Only where this rank saw the loss does it know that its own values are fine.
    const bool fine = bad.empty() && (parts.staged == nullptr || parts.staged->has_last());
    const std::string place = !fine && !culprit.empty() ? culprit
                              : bad.empty()             ? "another rank"
                                                        : "the loss itself";
    throw NotFiniteError(
        {.what = fmt::format("the loss is {} at step {}: the first bad value is in {}",
                             bad.empty() ? "not finite" : bad, step + 1, place),
         .why = "a NaN or an infinity arose there",
         .fix = place.find("batch") != std::string::npos
                    ? "find the sample with --set data.check_finite=true, or run braid data check"
                    : "lower optimizer.lr, set train.clip=1, or use precision bf16 instead of "
                      "fp16"});
  }
}

// "nan", "inf", "-inf" if the loss is that, else nothing.
std::string Trainer::Impl::bad_value_in(const data::Batch& batch, const Forward& forward) {
  const at::NoGradGuard no_grad;
  const at::Tensor output = forward(batch.input);
  if (!output.defined()) return "";  // the rank of the last stage tells
  const auto loss =
      nn::loss(options.train.loss, output, model.local_target(batch.target), model.loss_share())
          .item<double>();
  return std::isfinite(loss) ? "" : bad_value(loss);
}

void Trainer::Impl::end_epoch() {
  settle();
  epoch_seconds += seconds_since(last_step_end);  // a GPU may have been steps behind
  EpochRecord record;
  record.epoch = epoch;
  record.step = step;
  record.steps = recorder.steps;
  record.train_loss =
      recorder.steps > 0 ? recorder.loss_sum / static_cast<double>(recorder.steps) : std::nan("");
  record.lr = optim::lr_at(options.optimizer.schedule, schedule, step);
  record.seconds = epoch_seconds;
  record.samples_per_second = static_cast<double>(recorder.samples) / std::max(epoch_seconds, 1e-9);
  recorder.loss_sum = 0;
  recorder.steps = 0;
  recorder.samples = 0;
  epoch_seconds = 0;
  sink.epoch(record);
}

void Trainer::Impl::between_steps(const data::Batch& batch) {
  const bool epoch_done = batch.step + 1 == loader.steps_per_epoch();
  const auto due = [&](int64_t every) { return every > 0 ? step % every == 0 : epoch_done; };
  const bool validation_due = due(options.valid.every);
  const bool checkpoint_due = due(options.checkpoint.every);
  tell_of_save(/*wait=*/false);
  if (divergence) divergence->step(step);
  if (epoch_done) end_epoch();
  if (validation_due) validate();
  if (checkpoint_due) save();  // last: it keeps what the validation of this step found
  if (epoch_done || validation_due || checkpoint_due) last_step_end = Clock::now();
}

void Trainer::Impl::validate() {
  if (data.valid == nullptr) return;
  settle();
  ValidRecord record = evaluate(data::Split::valid);
  record.epoch = epoch;
  record.step = step;
  last_metrics = record.metrics;
  last_metrics["loss"] = record.loss;
  validated_step = step;
  sink.valid(record);
  draw_picture();
  watch_progress();
}

void Trainer::Impl::watch_progress() {
  const ValidOptions& valid = options.valid;
  const double metric = last_metrics.at(valid.metric);  // check_metric_names() saw it
  const double value = valid.highest ? -metric : metric;
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
  reason.clear();
  const StopSignals watched;  // the caller's handlers come back when the run is over
  signals = &watched;
  const ProfileSignal profile_signal;
  check_metric_names();
  sink.start(run_info());
  open_plan();
  try {
    train_until_done();
    return finish();
  } catch (const NotFiniteError&) {
    reason = "not_finite";
    sink.end(end_record());
    throw;
  }
}

void Trainer::Impl::train_until_done() {
  if (options.train.initial_validation && step == 0) validate();
  last_step_end = Clock::now();
  while (!out_of_budget()) {
    picture_batch.reset();  // one batch at a time
    profiler->begin_step(step);
    std::optional<Region> region(std::in_place, regions::data);
    const std::optional<data::Batch> batch = loader.next();
    region.reset();
    if (!batch) continue;  // the end of an epoch; the next call begins another
    train_on(*batch);
    if (ranks.alone()) profiler->request(profiler->wish());
    if (profiler->end_step()) last_step_end = Clock::now();
    picture_batch = batch;
    between_steps(*batch);
  }
}

EndRecord Trainer::Impl::end_record() const {
  EndRecord end;
  end.step = step;
  end.reason = reason;
  end.metrics = last_metrics;
  end.seconds = seconds_since(started);
  return end;
}

EndRecord Trainer::Impl::finish() {
  settle();
  profiler->finish();
  const bool interrupted = reason == "signal";
  // A run may end within an epoch: what it learned there is recorded and validated too.
  if (!interrupted && recorder.steps > 0) end_epoch();
  if (!interrupted && validated_step != step) validate();
  // Whoever is stopped wants to go on: by a signal or by the clock, the run is saved in any case.
  if (options.checkpoint.at_end || interrupted || reason == "time") save();
  tell_of_save(/*wait=*/true);
  EndRecord end = end_record();
  if (data.test != nullptr && options.valid.test_at_end && !interrupted) {
    ValidRecord test = evaluate(data::Split::test);
    test.split = "test";
    test.epoch = epoch;
    test.step = step;
    sink.valid(test);
    end.metrics["test_loss"] = test.loss;
  }
  end.seconds = seconds_since(started);
  sink.end(end);
  ranks.control.barrier().wait();  // who left now would be missed by those who still write
  return end;
}

std::string Trainer::Impl::doing() const {
  return phase.empty() ? now : fmt::format("{}, {}", now, phase);
}

template <class Body>
auto Trainer::Impl::within_memory(const Body& body) {
  try {
    return reporting_memory(
        {.options = options, .ranks = ranks, .log = &log, .during = [this] { return doing(); }},
        body);
  } catch (const MemoryError&) {
    reason = "out_of_memory";
    sink.end(end_record());
    throw;
  }
}

Trainer::Trainer(nn::Model& model, Splits data, RunOptions options, report::Sink& sink, Log& log,
                 Ranks ranks)
    : impl_(std::make_unique<Impl>(model, std::move(data), std::move(options), sink, log,
                                   std::move(ranks))) {}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

bool Trainer::resume() {
  return impl_->within_memory([&] { return impl_->resume(); });
}
EndRecord Trainer::fit() {
  return impl_->within_memory([&] { return impl_->fit(); });
}
ValidRecord Trainer::evaluate(data::Split split) {
  return impl_->within_memory([&] { return impl_->evaluate(split); });
}
State Trainer::state() const { return impl_->state(); }

}  // namespace braid::train
