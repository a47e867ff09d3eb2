// SPDX-License-Identifier: BSD-3-Clause
// braid schedule: what each rank of a pipeline does, when, and how long it idles.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/core/fs.h"
#include "braid/parallel/schedule.h"
#include "cli/command.h"
#include "cli/usage.h"

namespace braid::cli {
namespace {

struct ScheduleArguments {
  parallel::ScheduleOptions options = {.ranks = 4, .micros = 8};
  parallel::Durations durations;
  std::string kind = "1f1b", file, svg, yaml;
  int limit = 0;
  bool json = false;
};

// A schedule with what is to be said about it.
struct TimedSchedule {
  parallel::Schedule schedule;
  parallel::Timeline clock;
  std::vector<int> versions;  // of the weights, kept by each stage
};

TimedSchedule timed_schedule(const ScheduleArguments& arguments) {
  parallel::ScheduleOptions options = arguments.options;
  options.kind = parallel::schedule_kind(arguments.kind);
  TimedSchedule timed;
  timed.schedule = arguments.file.empty() ? parallel::make_schedule(options)
                                          : parallel::schedule_from(Config::load(arguments.file));
  check(timed.schedule, arguments.limit);
  timed.clock = simulate(timed.schedule, arguments.durations);
  timed.versions = versions_kept(timed.schedule, options);
  return timed;
}

int64_t sends_of(const parallel::Schedule& schedule, size_t rank) {
  return std::count_if(schedule.lists[rank].begin(), schedule.lists[rank].end(),
                       [](const parallel::Action& a) { return parallel::sends(a.act); });
}

nlohmann::json as_json(const TimedSchedule& timed) {
  const parallel::Schedule& schedule = timed.schedule;
  nlohmann::json ranks = nlohmann::json::array();
  for (size_t r = 0; r < schedule.lists.size(); ++r)
    ranks.push_back({{"rank", r},
                     {"stages", schedule.stages_of(static_cast<int>(r))},
                     {"busy", timed.clock.busy[r]},
                     {"span", timed.clock.span[r]},
                     {"in_flight", timed.clock.in_flight[r]},
                     {"sends", sends_of(schedule, r)}});
  return {{"name", schedule.name},
          {"micros", schedule.micros},
          {"makespan", timed.clock.makespan},
          {"bubble", timed.clock.bubble},
          {"rank_of", schedule.rank_of},
          {"versions", timed.versions},
          {"ranks", std::move(ranks)}};
}

void print_table(const TimedSchedule& timed) {
  const auto& [schedule, clock, versions] = timed;
  fmt::print("{}\n{:<6} {:<12} {:>10} {:>10} {:>10} {:>10} {:>8}\n{:-<72}\n", to_text(schedule),
             "rank", "stages", "busy", "idle", "in flight", "versions", "sends", "");
  for (size_t r = 0; r < schedule.lists.size(); ++r) {
    const std::vector<int> stages = schedule.stages_of(static_cast<int>(r));
    int kept = 1;
    for (const int s : stages) kept = std::max(kept, versions[static_cast<size_t>(s)]);
    fmt::print("{:<6} {:<12} {:>10g} {:>10g} {:>10} {:>10} {:>8}\n", r,
               fmt::format("{}", fmt::join(stages, ", ")), clock.busy[r],
               clock.makespan - clock.busy[r], clock.in_flight[r], kept, sends_of(schedule, r));
  }
  fmt::print("{:-<72}\n{}: time {:g}, idle {:.2f} %\n", "", schedule.name, clock.makespan,
             100 * clock.bubble);
}

Exit schedule_command(const ScheduleArguments& arguments) {
  const TimedSchedule timed = timed_schedule(arguments);
  if (!arguments.svg.empty()) write_atomic(arguments.svg, to_svg(timed.schedule, timed.clock));
  if (!arguments.yaml.empty()) write_atomic(arguments.yaml, to_yaml(timed.schedule));
  if (arguments.json) {
    fmt::print("{}\n", as_json(timed).dump());
    return Exit::ok;
  }
  print_table(timed);
  for (const std::string& written : {arguments.svg, arguments.yaml})
    if (!written.empty()) fmt::print("wrote {}\n", written);
  return Exit::ok;
}

void add_durations(CLI::App& command, parallel::Durations& durations) {
  const auto add = [&](const char* flag, double& value, const char* help) {
    command.add_option(flag, value, help)->check(zero_or_more())->capture_default_str();
  };
  add("--forward", durations.forward,
      "time of a rank's forward pass of one micro-batch, in any unit");
  add("--backward", durations.backward, "time of its backward pass");
  add("--input-backward", durations.input_backward,
      "time of the backward part for the input, if the pass is split");
  add("--weight-backward", durations.weight_backward, "time of the backward part for the weights");
  add("--message", durations.message, "time of a message between two ranks");
}

}  // namespace

void add_schedule(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ScheduleArguments>();
  CLI::App* command =
      app.add_subcommand("schedule", "check, time and draw the actions of a pipeline schedule");
  command
      ->add_option("--kind", arguments->kind,
                   fmt::format("{}", fmt::join(parallel::schedule_kinds(), ", ")))
      ->capture_default_str();
  parallel::ScheduleOptions& options = arguments->options;
  command->add_option("--ranks", options.ranks, "ranks of the pipeline")->capture_default_str();
  command->add_option("--micros", options.micros, "micro-batches per step")->capture_default_str();
  command->add_option("--chunks", options.chunks, "stages per rank (interleaved)");
  command->add_option("--rounds", options.rounds, "steps in one list (pipedream, pipedream_2bw)");
  command->add_flag("--vertical-sync", options.vertical_sync,
                    "pipedream: one version of the weights for a micro-batch on all stages");
  command->add_flag("--gathers", options.gathers, "gather and release weights (ZeRO-3)");
  command->add_option("--file", arguments->file,
                      "YAML file with a list of actions, instead of --kind");
  command
      ->add_option("--limit", arguments->limit,
                   "refuse lists with more micro-batches in flight on a rank")
      ->check(zero_or_more());
  add_durations(*command, arguments->durations);
  command->add_option("--svg", arguments->svg, "SVG file for the picture");
  command->add_option("--yaml", arguments->yaml, "YAML file for the lists");
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return schedule_command(*arguments); }; });
}

}  // namespace braid::cli
