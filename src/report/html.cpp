// SPDX-License-Identifier: BSD-3-Clause
#include "braid/report/html.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "braid/core/regular_file.h"
#include "report/page.h"
#include "report/page_profile.h"
#include "report/page_ranks.h"
#include "report/page_text.h"
#include "report/summary.h"

namespace braid::report {
namespace {

PageJson json_of(const std::optional<BestValue>& best) {
  if (!best) return nullptr;
  return {{"name", best->name}, {"value", rounded(best->value)}, {"step", best->step}};
}

double one_step(const StepRecord&) { return 1; }
double seconds_of(const StepRecord& step) { return step.seconds; }

PageJson curves_of(const RunLog& log) {
  const Curves curves(log);
  const auto loss = [](const StepRecord& step) { return step.loss; };
  const auto norm = [](const StepRecord& step) {
    return step.grad_norm.value_or(std::numeric_limits<double>::quiet_NaN());
  };
  const auto any = [&](auto has) { return std::ranges::any_of(log.steps, has); };
  PageJson json;
  json["loss"] = json_of(curves.extremes(loss));
  json["smooth"] = json_of(curves.smooth(loss));
  json["valid"] = json_of(curves.valid("loss"));
  json["lr"] = json_of(curves.last([](const StepRecord& step) { return step.lr; }));
  json["samples"] = json_of(curves.ratio(
      [](const StepRecord& step) { return static_cast<double>(step.samples); }, seconds_of));
  if (any([](const StepRecord& step) { return step.tokens > 0; }))
    json["tokens"] = json_of(curves.ratio(
        [](const StepRecord& step) { return static_cast<double>(step.tokens); }, seconds_of));
  if (any([](const StepRecord& step) { return step.tflops > 0; }))
    json["tflops"] = json_of(curves.ratio(
        [](const StepRecord& step) { return step.tflops * step.seconds; }, seconds_of));
  json["wait"] = json_of(
      curves.ratio([](const StepRecord& step) { return 100 * step.data_wait; }, seconds_of));
  if (log.info.ranks > 1)
    json["comm"] = json_of(
        curves.ratio([](const StepRecord& step) { return 100 * step.comm_wait; }, seconds_of));
  json["memory"] = json_of(curves.ratio(
      [](const StepRecord& step) { return std::ldexp(static_cast<double>(step.memory), -30); },
      one_step));
  if (any([](const StepRecord& step) { return step.grad_norm.has_value(); }))
    json["grad_norm"] = json_of(curves.smooth(norm));
  return json;
}

std::set<std::string> metric_names(const RunLog& log) {
  std::set<std::string> names;
  for (const ValidRecord& valid : log.valids)
    if (valid.split == "valid")
      for (const auto& [name, value] : valid.metrics) names.insert(name);
  return names;
}

// Curve, last and best of each metric of the validations.
PageJson metrics_json(const RunLog& log) {
  const Curves curves(log);
  PageJson json = PageJson::object();
  for (const std::string& name : metric_names(log))
    json[name] = {{"curve", json_of(curves.valid(name))},
                  {"best", json_of(best_of(log, name))},
                  {"up", higher_is_better(name)}};
  return json;
}

// Passes over other splits, e.g. the test set at the end; the last of each.
PageJson other_splits(const RunLog& log) {
  PageJson json = PageJson::object();
  for (const ValidRecord& valid : log.valids) {
    if (valid.split == "valid" || valid.step == 0) continue;
    PageJson values = {{"loss", rounded(valid.loss)}};
    for (const auto& [name, value] : valid.metrics) values[name] = rounded(value);
    json[valid.split] = std::move(values);
  }
  return json;
}

PageJson events_json(const RunLog& log) {
  constexpr size_t most_events = 200;
  PageJson json = PageJson::array();
  const size_t first = log.events.size() > most_events ? log.events.size() - most_events : 0;
  for (size_t i = first; i < log.events.size(); ++i)
    json.push_back(
        {{"step", log.events[i].step}, {"kind", log.events[i].kind}, {"text", log.events[i].text}});
  return json;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view letters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j)
      text += i + j <= bytes.size() ? letters[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

PageJson picture_json(const std::filesystem::path& run) {
  const std::filesystem::path file = run / "picture.png";
  if (!std::filesystem::exists(file)) return nullptr;
  return "data:image/png;base64," + base64(read_regular(file));
}

PageJson summary_json(const RunLog& log) {
  const RunSummary summary = summary_of(log);
  return {{"name", summary.name},
          {"model", summary.model},
          {"device", summary.device},
          {"reason", summary.reason},
          {"spec", log.info.config_spec},
          {"dir", log.info.dir},
          {"parameters", summary.parameters},
          {"batch", summary.global_batch},
          {"steps", summary.steps},
          {"total", log.info.total_steps},
          {"loss", rounded(summary.loss)},
          {"valid_loss", json_of(best_of(log, "loss"))},
          {"best", json_of(summary.best)},
          {"seconds", rounded(summary.seconds)},
          {"samples", rounded(summary.samples_per_second)},
          {"tokens", rounded(summary.tokens_per_second)},
          {"tflops", rounded(summary.tflops)},
          {"mfu", log.info.peak_flops > 0 ? rounded(1e14 * summary.tflops / log.info.peak_flops)
                                          : PageJson(nullptr)},
          {"wait", rounded(100 * summary.data_wait)},
          {"comm", summary.ranks > 1 ? rounded(100 * summary.comm_wait) : PageJson(nullptr)},
          {"memory", rounded(std::ldexp(static_cast<double>(summary.memory), -30))}};
}

PageJson run_json(const std::filesystem::path& run) {
  const RunLog log = read_log(run / "log.jsonl");
  PageJson json = summary_json(log);
  json["label"] = log.info.name;
  json["path"] = run.string();
  json["curves"] = curves_of(log);
  json["ranks"] = ranks_json(log);
  json["rank_curves"] = rank_curves_json(log);
  json["metrics"] = metrics_json(log);
  json["splits"] = other_splits(log);
  json["events"] = events_json(log);
  json["config"] = log.info.config;
  json["picture"] = picture_json(run);
  json["profile"] = profile_json(run / "profile");
  return json;
}

// Two runs of one name are told apart by their folders.
void make_labels_unique(PageJson& runs) {
  for (auto& run : runs) {
    const auto same = std::ranges::count_if(
        runs, [&](const PageJson& other) { return other["name"] == run["name"]; });
    if (same > 1) run["label"] = run["path"];
  }
}

std::string title_of(const PageJson& runs) {
  std::string names;
  for (const auto& run : runs)
    names += (names.empty() ? "" : ", ") + run["label"].get<std::string>();
  return "braid: " + names;
}

}  // namespace

std::string html_report(const std::vector<std::filesystem::path>& runs) {
  PageJson data = PageJson::array();
  for (const auto& run : runs) data.push_back(run_json(run));
  make_labels_unique(data);
  return filled(page_html, {{"title", html_escaped(title_of(data))},
                            {"style", std::string(page_css)},
                            {"shared_script", std::string(page_shared_js)},
                            {"timeline_script", std::string(page_timeline_js)},
                            {"ranks_script", std::string(page_ranks_js)},
                            {"profile_script", std::string(page_profile_js)},
                            {"script", std::string(page_js)},
                            {"data", script_escaped(data)}});
}

}  // namespace braid::report
