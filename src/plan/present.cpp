// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/present.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/observe.h"
#include "braid/core/units.h"
#include "plan/present_json.h"

namespace braid::plan {
namespace {

constexpr double bytes_of_gib = 1024.0 * 1024 * 1024;

std::string told_bytes(int64_t bytes) { return to_text(Bytes{bytes}); }
std::string told_share(double share) { return fmt::format("{:.0f} %", 100 * share); }

// Columns as wide as their widest word; those in `right` end on one line.
std::string aligned(const std::vector<std::vector<std::string>>& rows,
                    const std::vector<bool>& right) {
  std::vector<size_t> width(right.size(), 0);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i)
      line += right[i] ? fmt::format("{:>{}}  ", row[i], width[i])
                       : fmt::format("{:<{}}  ", row[i], width[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string pace_text(const StepTime& time) {
  if (time.tokens_per_second > 0) return with_prefix(time.tokens_per_second, "");
  return fmt::format("{:.4g}", time.samples_per_second);
}

std::string peak_text(const Request& request, const Plan& plan) {
  const auto bytes = static_cast<double>(plan.peak_bytes);
  return fmt::format("{:.1f} ({})", bytes / bytes_of_gib,
                     told_share(bytes / static_cast<double>(memory_limit(request))));
}

std::string seconds_text(double seconds) {
  return seconds > 0 ? fmt::format("{:.4g}", seconds) : std::string("-");
}

std::vector<std::string> plan_row(const Request& request, const Plan& plan, size_t place) {
  const bool timed = plan.time.seconds > 0;
  const bool staged = plan.choice.mesh.pipeline > 1;
  return {plan.fits ? std::to_string(place) : "-",
          layout_text(plan.choice),
          precision_word(plan),
          std::to_string(plan.choice.zero),
          memory_text(plan.choice),
          std::to_string(plan.choice.micro_batch),
          staged ? std::string(parallel::to_text(plan.choice.schedule)) : "-",
          plan.peak_bytes > 0 ? peak_text(request, plan) : "-",
          seconds_text(plan.time.seconds),
          timed ? pace_text(plan.time) : "-",
          timed ? told_share(plan.time.model_utilisation) : "-",
          reason_word(plan)};
}

bool tells_tokens(const std::vector<Plan>& plans) {
  return std::any_of(plans.begin(), plans.end(),
                     [](const Plan& plan) { return plan.time.tokens_per_second > 0; });
}

std::string head_text(const Request& request) {
  const int64_t batch = batch_asked(request);
  return fmt::format(
      "{}{} on {} x {} ({}), {}, at most {} a GPU\n", model_word(request.options),
      request.options.run.spec.empty() ? "" : " of " + request.options.run.spec, request.gpus,
      request.cluster.gpu.name, request.cluster.name,
      batch > 0 ? fmt::format("global batch {}", batch) : std::string("batch as of the config"),
      told_bytes(memory_limit(request)));
}

std::string kinds_text(const RankPeak& peak) {
  std::string text;
  const auto row = [&](std::string_view name, int64_t bytes) {
    if (bytes > 0) text += fmt::format("    {:<24} {:>12}\n", name, told_bytes(bytes));
  };
  for (int kind = 0; kind < memory_kinds; ++kind)
    row(to_text(static_cast<MemoryKind>(kind)), peak.by_kind[static_cast<size_t>(kind)]);
  row("gaps of the allocator", peak.reserved - peak.bytes);
  row("driver, communicators", peak.device - peak.reserved);
  return text;
}

std::string parts_text(const StepTime& time) {
  std::string text;
  for (const auto& [name, seconds] : named_parts(time.parts))
    if (seconds > 0)
      text += fmt::format("    {:<24} {:>12} {:>6}\n", name, to_text(Seconds{seconds}),
                          told_share(seconds / time.seconds));
  if (time.hidden_communication > 0)
    text += fmt::format("    communication behind kernels: {}\n",
                        to_text(Seconds{time.hidden_communication}));
  return text;
}

void add_points(std::string& text, const char* title, const std::vector<ScalingPoint>& points,
                int64_t below) {
  if (points.empty()) return;
  std::vector<std::vector<std::string>> rows = {
      {"GPUs", "samples/s", "efficiency", "s/step", "layout"}};
  for (const ScalingPoint& point : points)
    rows.push_back({std::to_string(point.gpus), fmt::format("{:.4g}", point.samples_per_second),
                    told_share(point.efficiency), seconds_text(point.plan.time.seconds),
                    point.plan.fits ? to_text(point.plan.choice) : point.plan.reason});
  text += fmt::format("{}\n{}", title, aligned(rows, {true, true, true, true, false}));
  text += below > 0 ? fmt::format("efficiency falls below 75 % at {} GPUs\n\n", below)
                    : "efficiency stays at 75 % or above\n\n";
}

std::string change_of(double before, double after) {
  return before > 0 ? fmt::format("{:+.1f} %", 100 * (after / before - 1)) : std::string("-");
}

}  // namespace

int64_t memory_limit(const Request& request) {
  return request.memory > 0 ? request.memory : request.cluster.gpu.memory.count;
}

std::string layout_text(const Choice& choice) {
  std::vector<std::string> axes;
  const auto add = [&](const char* name, int64_t size) {
    if (size > 1) axes.push_back(fmt::format("{} {}", name, size));
  };
  add("data", choice.mesh.data.value_or(1));
  add("shard", choice.mesh.shard.value_or(1));
  add("tensor", choice.mesh.tensor);
  add("context", choice.mesh.context);
  add("pipeline", choice.mesh.pipeline);
  add("expert", choice.mesh.expert);
  return axes.empty() ? "one GPU" : fmt::format("{}", fmt::join(axes, " x "));
}

std::string memory_text(const Choice& choice) {
  std::vector<std::string> words;
  if (choice.recompute != memory::Again::none) words.emplace_back(recompute_word(choice.recompute));
  if (!choice.offload.empty())
    words.push_back(fmt::format("offload {}", fmt::join(choice.offload, " + ")));
  return words.empty() ? "-" : fmt::format("{}", fmt::join(words, ", "));
}

Choice choice_of(const train::RunOptions& options, int64_t world) {
  Choice choice;
  choice.zero = options.train.zero;
  choice.mesh = parallel::resolve(options.mesh, world, static_cast<int>(choice.zero));
  const int64_t ranks = *choice.mesh.data * *choice.mesh.shard * choice.mesh.expert;
  const int64_t local = (train::global_batch_of(options.train, ranks) + ranks - 1) / ranks;
  choice.micro_batch = std::min(options.train.micro_batch.value_or(local), local);
  choice.recompute = options.memory.recompute;
  choice.schedule = options.parallel.schedule;
  choice.precision = options.train.precision;
  choice.offload = options.memory.offload;
  return choice;
}

std::string table_text(const Request& request, const Found& found, size_t top) {
  std::vector<std::vector<std::string>> rows = {
      {"#", "layout", "precision", "ZeRO", "recompute", "micro", "schedule", "peak GiB", "s/step",
       tells_tokens(found.plans) ? "tokens/s" : "samples/s", "MFU", "why"}};
  size_t place = 0;
  for (const Plan& plan : found.plans)
    if (place < top) rows.push_back(plan_row(request, plan, ++place));
  std::string text = head_text(request) + aligned(rows, {true, false, false, true, false, true,
                                                         false, true, true, true, true, false});
  if (found.plans.size() > top)
    text += fmt::format("and {} more (--top {})\n", found.plans.size() - top, found.plans.size());
  text += fmt::format("{} choices: {} left out by a bound, {} run dry; searched for {}\n",
                      with_commas(found.choices), with_commas(found.pruned),
                      with_commas(found.dry_runs), to_text(Seconds{found.seconds}));
  for (const std::string& note : found.notes) text += "note: " + note + "\n";
  return text;
}

std::string plan_text(const Request& request, const Plan& plan) {
  std::string text = fmt::format("{}: {}\n", to_text(plan.choice),
                                 plan.fits ? "fits" : "does not fit, " + plan.reason);
  for (const RankPeak& peak : plan.peaks)
    text += fmt::format("  {} ranks: {} of {} on the device at the {}{}, {} on the host\n{}",
                        peak.name, told_bytes(peak.device), told_bytes(memory_limit(request)),
                        peak.moment, peak.module.empty() ? "" : ", in " + peak.module,
                        told_bytes(peak.host), kinds_text(peak));
  if (plan.time.seconds > 0)
    text += fmt::format("  a step: {}, {} {}/s, {} of the peak\n{}",
                        to_text(Seconds{plan.time.seconds}), pace_text(plan.time),
                        plan.time.tokens_per_second > 0 ? "tokens" : "samples",
                        told_share(plan.time.model_utilisation), parts_text(plan.time));
  if (plan.gpu_hours > 0)
    text += fmt::format("  the whole run: {:.4g} GPU hours\n", plan.gpu_hours);
  return text;
}

std::string scaling_text(const Request& request, const Scaling& scaling) {
  std::string text = head_text(request);
  add_points(text, "strong scaling: the same global batch", scaling.strong, scaling.strong_below);
  add_points(text, "weak scaling: the same batch a GPU", scaling.weak, scaling.weak_below);
  return text;
}

std::string effect_text(const Request& request, const Effect& effect) {
  const Plan &a = effect.before, &b = effect.after;
  const auto bytes = [](const Plan& plan) { return static_cast<double>(plan.peak_bytes); };
  const std::vector<std::vector<std::string>> rows = {
      {"", "as it is", effect.sets, "change"},
      {"peak of a GPU", told_bytes(a.peak_bytes), told_bytes(b.peak_bytes),
       change_of(bytes(a), bytes(b))},
      {"fits", a.fits ? "yes" : "no", b.fits ? "yes" : "no", ""},
      {"s/step", seconds_text(a.time.seconds), seconds_text(b.time.seconds),
       change_of(a.time.seconds, b.time.seconds)},
      {"samples/s", fmt::format("{:.4g}", a.time.samples_per_second),
       fmt::format("{:.4g}", b.time.samples_per_second),
       change_of(a.time.samples_per_second, b.time.samples_per_second)}};
  return head_text(request) + aligned(rows, {false, true, true, true}) +
         (effect.text.empty() ? "" : effect.text + "\n");
}

}  // namespace braid::plan
