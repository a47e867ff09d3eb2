// SPDX-License-Identifier: BSD-3-Clause
#include "report/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace braid::report {
namespace {

// The metric that a reader looks at first: the error of a forecast, else the first metric by name,
// else the loss.
std::string main_metric(const ValidRecord& valid) {
  if (valid.metrics.empty()) return "loss";
  const auto error = std::ranges::find_if(
      valid.metrics, [](const auto& metric) { return metric.first.starts_with("rmse"); });
  return error == valid.metrics.end() ? valid.metrics.begin()->first : error->first;
}

double metric_of(const ValidRecord& valid, const std::string& metric) {
  if (metric == "loss") return valid.loss;
  const auto found = valid.metrics.find(metric);
  return found == valid.metrics.end() ? std::numeric_limits<double>::quiet_NaN() : found->second;
}

const ValidRecord* last_validation(const RunLog& log) {
  const auto found =
      std::ranges::find(log.valids.rbegin(), log.valids.rend(), "valid", &ValidRecord::split);
  return found == log.valids.rend() ? nullptr : &*found;
}

void sum_steps(RunSummary& summary, const std::vector<StepRecord>& steps) {
  double samples = 0, tokens = 0, tera_flop = 0, wait = 0, comm = 0;
  for (const StepRecord& step : steps) {
    samples += static_cast<double>(step.samples);
    tokens += static_cast<double>(step.tokens);
    tera_flop += step.tflops * step.seconds;
    wait += step.data_wait;
    comm += step.comm_wait;
    summary.seconds += step.seconds;
    summary.memory = std::max(summary.memory, step.memory);
  }
  if (!(summary.seconds > 0)) return;
  summary.samples_per_second = samples / summary.seconds;
  summary.tokens_per_second = tokens / summary.seconds;
  summary.tflops = tera_flop / summary.seconds;
  summary.data_wait = wait / summary.seconds;
  summary.comm_wait = comm / summary.seconds;
}

}  // namespace

bool higher_is_better(const std::string& metric) {
  constexpr std::array<std::string_view, 5> growing = {"acc", "cosine", "psnr", "ssim", "r2"};
  return std::ranges::any_of(growing,
                             [&](std::string_view word) { return metric.starts_with(word); });
}

std::optional<BestValue> best_of(const RunLog& log, const std::string& metric) {
  std::optional<BestValue> best;
  for (const ValidRecord& valid : log.valids) {
    const double value = metric_of(valid, metric);
    if (valid.split != "valid" || !std::isfinite(value)) continue;
    const bool better =
        !best || (higher_is_better(metric) ? value > best->value : value < best->value);
    if (better) best = BestValue{metric, value, valid.step};
  }
  return best;
}

RunSummary summary_of(const RunLog& log) {
  RunSummary summary;
  summary.name = log.info.name;
  summary.model = log.info.model;
  summary.device = log.info.device;
  summary.parameters = log.info.parameters;
  summary.global_batch = log.info.global_batch;
  summary.ranks = log.info.ranks;
  summary.steps = log.steps.empty() ? log.info.first_step : log.steps.back().step;
  summary.loss =
      log.steps.empty() ? std::numeric_limits<double>::quiet_NaN() : log.steps.back().loss;
  // An end before the last start is that of a part which was resumed.
  if (!log.ends.empty() && log.ends.back().step >= summary.steps &&
      (log.ends.back().step > log.info.first_step || log.info.first_step == 0))
    summary.reason = log.ends.back().reason;
  sum_steps(summary, log.steps);
  if (const ValidRecord* valid = last_validation(log)) {
    summary.valid_loss = valid->loss;
    summary.metrics.assign(valid->metrics.begin(), valid->metrics.end());
    summary.best = best_of(log, main_metric(*valid));
  }
  return summary;
}

RunSummary summarize(const std::filesystem::path& run) {
  return summary_of(read_log(run / "log.jsonl"));
}

}  // namespace braid::report
