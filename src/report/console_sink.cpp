// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>

#include "braid/core/units.h"
#include "braid/report/sink.h"
#include "report/pace.h"
#include "report/progress_bar.h"
#include "report/rank_text.h"

namespace braid::report {
namespace {

std::string metrics_text(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    text += fmt::format("{}{}={:.6g}", text.empty() ? "" : ", ", name, value);
  return text;
}

// In the words of a user: the last line of a run is the one that is read.
std::string reason_text(const std::string& reason) {
  if (reason == "steps") return "all steps done";
  if (reason == "epochs") return "all epochs done";
  if (reason == "time") return "the time limit is reached";
  if (reason == "early_stop") return "stopped early, the metric no longer improves";
  if (reason == "signal") return "stopped by a signal, --resume goes on from here";
  if (reason == "not_finite") return "stopped, the loss is not finite";
  if (reason == "out_of_memory") return "stopped, out of memory";
  return reason;
}

class ConsoleSink final : public Sink {
 public:
  ConsoleSink(const ReportOptions& options, Log& log, Terminal terminal)
      : every_(std::max<int64_t>(options.every, 1)),
        log_(log),
        tty_(terminal.is_tty),
        bar_(terminal) {}
  ~ConsoleSink() override { bar_.clear(); }

  void start(const RunInfo& info) override {
    info_ = info;
    say(fmt::format("Run {}: {}, {} parameters, on {}", info.name, info.model,
                    with_commas(info.parameters), info.device));
    const std::string steps = info.total_steps > 0
                                  ? fmt::format("{} steps in all", info.total_steps)
                                  : std::string("no limit in steps");
    say(fmt::format("  {}: {} samples a step, {} steps an epoch, {}", info.config_spec,
                    info.global_batch, info.steps_per_epoch, steps));
    if (info.ranks > 1) say("  " + ranks_text(info));
    if (info.first_step > 0) say(fmt::format("  goes on after step {}", info.first_step));
    say("Starting Training Loop...");
  }

  void step(const StepRecord& record) override {
    forecast_.add_step(record.seconds);
    if (tty_) {
      pace_.fade(0.95);
      recent_.fade(0.95);
    }
    pace_.add(record);
    recent_.add(record.ranks);
    of_epoch_.add(record.ranks);
    if (record.skipped)
      say(fmt::format("  step {}: update skipped, the loss scale is now {}", record.step,
                      record.loss_scale.value_or(0)));
    const bool last = record.step == info_.total_steps;
    if (tty_ && (last || bar_.due())) draw(record);
    if (tty_ || (!last && record.step % every_ != 0 && record.step != info_.first_step + 1)) return;
    say(step_text(record));
    pace_ = {};
    recent_ = {};
  }

  // The sentences of the NERSC tutorial, which counts epochs from 1: scripts pick the numbers out
  // of them.
  void epoch(const EpochRecord& record) override {
    say(fmt::format("Time taken for epoch {} is {:f} sec, avg {:f} samples/sec", record.epoch + 1,
                    record.seconds, record.samples_per_second));
    say(fmt::format("  Avg train loss={:f}", record.train_loss));
    const std::vector<RankTime> means = of_epoch_.means();
    if (!means.empty())
      for (const std::string& line : rank_table(means)) say(line);
    of_epoch_ = {};
  }

  void valid(const ValidRecord& record) override {
    forecast_.add_pause(record.seconds);
    if (record.step == 0) return say_before_training(record);
    const bool valid = record.split == "valid";
    say(fmt::format("  Avg {} loss={}", valid ? "val" : record.split, record.loss));
    say(fmt::format("  Total {} time: {} sec", valid ? "validation" : record.split,
                    record.seconds));
    if (record.metrics.empty()) return;
    say(fmt::format("  {} metrics: {}", valid ? "Validation" : record.split,
                    metrics_text(record.metrics)));
  }

  void event(const EventRecord& record) override {
    say(fmt::format("{} (step {}): {}", record.kind, record.step, record.text));
  }

  void end(const EndRecord& record) override {
    if (!record.metrics.empty()) say("Final metrics: " + metrics_text(record.metrics));
    say("DONE ---- rank 0");
    say(fmt::format("Finished at step {} after {}: {}. Results are in {}", record.step,
                    clock_text(record.seconds), reason_text(record.reason), info_.dir));
  }

 private:
  void say(const std::string& text) {
    bar_.clear();
    log_.info(text);
  }

  void say_before_training(const ValidRecord& record) {
    say(fmt::format("Before training: {} loss {:.6f}{}{}", record.split, record.loss,
                    record.metrics.empty() ? "" : ", ", metrics_text(record.metrics)));
  }

  // The most important first.
  std::vector<std::string> pace_words(int64_t step) const {
    std::vector<std::string> words = pace_.words(info_.peak_flops);
    if (info_.total_steps > 0)
      words.push_back("ETA " + clock_text(forecast_.seconds_left(info_.total_steps - step)));
    words.push_back(fmt::format("data wait {:.0f} %", 100 * pace_.wait_share()));
    if (info_.ranks > 1)
      words.push_back(fmt::format("comm wait {:.0f} %", 100 * pace_.comm_share()));
    const std::string slow = straggler_text(recent_.means());
    if (!slow.empty()) words.push_back(slow);
    return words;
  }

  std::string step_text(const StepRecord& record) const {
    std::string text = fmt::format("step {}", record.step);
    if (info_.total_steps > 0) text += fmt::format("/{}", info_.total_steps);
    text +=
        fmt::format(", epoch {}, loss {:.6f}, lr {:.4g}", record.epoch + 1, record.loss, record.lr);
    for (const std::string& word : pace_words(record.step)) text += ", " + word;
    text += ", memory " + to_text(Bytes{record.memory});
    if (record.grad_norm) text += fmt::format(", grad norm {:.4g}", *record.grad_norm);
    if (record.aux_loss && record.max_load)
      text += fmt::format(", router loss {:.4g}, largest expert {:.0f} %", *record.aux_loss,
                          100 * *record.max_load);
    return text;
  }

  void draw(const StepRecord& record) {
    std::vector<std::string> words = pace_words(record.step);
    words.insert(words.begin(), {fmt::format("epoch {}", record.epoch + 1),
                                 fmt::format("loss {:.4f}", record.loss)});
    bar_.draw({.done = record.step, .total = info_.total_steps, .words = std::move(words)});
  }

  int64_t every_;
  Log& log_;
  bool tty_;
  ProgressBar bar_;
  RunInfo info_;
  Pace pace_;
  RankSums recent_;    // since the last line
  RankSums of_epoch_;  // since the last epoch
  Forecast forecast_;
};

}  // namespace

std::unique_ptr<Sink> console_sink(const ReportOptions& options, Log& log, Terminal terminal) {
  return std::make_unique<ConsoleSink>(options, log, terminal);
}

}  // namespace braid::report
