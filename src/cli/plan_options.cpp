// SPDX-License-Identifier: BSD-3-Clause
// The flags of `braid plan`.
#include <fmt/format.h>

#include "cli/plan.h"
#include "cli/usage.h"

namespace braid::cli {
namespace {

void add_machine(CLI::App& command, PlanArguments& a) {
  command
      .add_option("--cluster", a.cluster,
                  "machine to plan for: a name such as dgx_a100, or a YAML file")
      ->type_name("NAME|FILE");
  command
      .add_option("--gpus", a.gpus,
                  "number of GPUs (default: the config's mesh, otherwise one node)")
      ->type_name("N");
  command
      .add_option("--memory", a.memory,
                  "memory per GPU that may be used, e.g. 40GiB (default: all)")
      ->type_name("BYTES");
}

void add_space(CLI::App& command, PlanArguments& a) {
  command.add_option("--global-batch", a.global_batch, "samples per step (default: the config's)")
      ->type_name("B");
  command
      .add_option("--precision", a.precisions,
                  "precisions to choose from, e.g. bf16,fp16 (default: the config's)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME,...");
  command.add_flag("--no-offload", a.no_offload, "do not move anything to the host");
  command.add_flag("--as-is", a.as_is, "no search: describe the layout of the config");
  command
      .add_option("--seconds", a.seconds,
                  "time limit of the command, in seconds; what was not looked at is listed; 0: "
                  "none, until the optimum is proven")
      ->type_name("S")
      ->check(zero_or_more())
      ->capture_default_str();
  command.add_option("--top", a.top, "number of plans to print")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{100'000}))
      ->capture_default_str();
}

void add_files(CLI::App& command, PlanArguments& a) {
  command.add_option("--html", a.html, "write an HTML page: memory, trade-off, timeline, table")
      ->type_name("FILE");
  command.add_option("--trace", a.trace, "write the timeline of the best plan for Perfetto")
      ->type_name("FILE");
  command.add_option("--apply", a.apply, "write the best plan as a config for braid train")
      ->type_name("FILE");
  command
      .add_option_function<std::vector<std::string>>(
          "--leave",
          [&a](const std::vector<std::string>& dirs) {
            a.leave = dirs.empty() ? std::string() : dirs.front();
          },
          "write plan.json into a run folder (default: the config's); the run warns when it "
          "deviates from the plan")
      ->expected(0, 1)
      ->type_name("[DIR]");
}

void add_questions(CLI::App& command, PlanArguments& a) {
  command.add_flag("--explain", a.explain,
                   "print which settings to change, and why, in the order to try");
  command
      .add_option("--effect", a.effect,
                  "compare the config with one change of it, e.g. --effect train.zero=2")
      ->allow_extra_args(false)
      ->type_name("KEY=VALUE");
  command
      .add_option("--scaling", a.scaling,
                  "strong and weak scaling over these numbers of GPUs, e.g. 1,2,4,8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("N,...")
      ->check(above_zero());
  command.add_flag("--max-micro-batch", a.max_micro_batch,
                   "find the largest micro-batch that fits the config's layout");
  command.add_flag("--max-size", a.max_size,
                   "find the longest sequence or the largest image that fits");
  command.add_flag("--min-gpus", a.min_gpus,
                   "find the smallest number of GPUs on which a layout fits");
  command
      .add_option("--cheapest", a.cheapest,
                  "find the plan with the fewest GPU hours for the whole run on up to N GPUs")
      ->type_name("N")
      ->check(above_zero());
  command.add_flag("--term-by-term", a.term_by_term,
                   "compare the memory formulas of the literature for a GPT with the dry run");
  command.add_flag("--published", a.published, "compare published runs with the predictions");
  command.add_flag("--verify", a.verify,
                   "run the config's step on this machine and compare it with its plan");
}

struct GivenFlag {
  const char* flag;
  bool given;
};

std::vector<GivenFlag> questions_of(const PlanArguments& a) {
  return {{"--explain", a.explain},        {"--max-micro-batch", a.max_micro_batch},
          {"--max-size", a.max_size},      {"--min-gpus", a.min_gpus},
          {"--cheapest", a.cheapest > 0},  {"--scaling", !a.scaling.empty()},
          {"--effect", !a.effect.empty()}, {"--term-by-term", a.term_by_term},
          {"--published", a.published},    {"--verify", a.verify}};
}

// What a search alone, or a layout, leads to.
std::vector<GivenFlag> outputs_of(const PlanArguments& a) {
  return {{"--as-is", a.as_is},
          {"--html", !a.html.empty()},
          {"--trace", !a.trace.empty()},
          {"--apply", !a.apply.empty()},
          {"--leave", a.leave.has_value()}};
}

Error two_at_once(const char* question, const char* other, const char* why) {
  return Error({.what = fmt::format("braid plan {} together with {}", question, other),
                .why = why,
                .fix = fmt::format("leave out one of the two, or run braid plan once with {} and "
                                   "once with {}",
                                   question, other)},
               Exit::usage);
}

}  // namespace

void check_flags(const PlanArguments& arguments) {
  const char* asked = nullptr;
  for (const auto& [flag, given] : questions_of(arguments)) {
    if (!given) continue;
    if (asked != nullptr) throw two_at_once(asked, flag, "a command answers one question");
    asked = flag;
  }
  if (asked == nullptr) return;
  for (const auto& [flag, given] : outputs_of(arguments))
    if (given)
      throw two_at_once(asked, flag,
                        "the answer is printed; only a search or --as-is alone has a best plan to "
                        "write");
}

void add_plan_options(CLI::App& command, PlanArguments& arguments) {
  command
      .add_option("config", arguments.config.spec,
                  "YAML file, or file:name for one of its named configs")
      ->type_name("CONFIG");
  add_sets(command, arguments.config.sets);
  add_machine(command, arguments);
  add_space(command, arguments);
  add_files(command, arguments);
  add_questions(command, arguments);
  add_json(command, arguments.json);
  command.footer(
      "Try: braid plan configs/gpt.yaml:gpt2 --cluster dgx_a100 --gpus 8 --html plan.html");
}

}  // namespace braid::cli
