// SPDX-License-Identifier: BSD-3-Clause
// braid plan CONFIG: what fits on a machine, how fast it runs and why, before a GPU is asked for.
#include "cli/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/core/deadline.h"
#include "braid/core/units.h"
#include "braid/plan/explain.h"
#include "braid/plan/present.h"
#include "braid/plan/published.h"
#include "braid/plan/published_memory.h"
#include "braid/plan/terms.h"

namespace braid::cli {
namespace {

void need_config(const PlanArguments& arguments) {
  if (arguments.config.spec.empty())
    throw ConfigError({.what = "no config was given",
                       .why = "a plan is one of a model and its training",
                       .fix = "braid plan configs/gpt.yaml:gpt2 --cluster dgx_a100 --gpus 8"});
}

// A text as one object, where that was asked for.
Exit tell(const PlanArguments& arguments, const std::string& text) {
  fmt::print("{}\n", arguments.json ? nlohmann::json{{"text", text}}.dump() : text);
  return Exit::ok;
}

Exit explain_command(const PlanArguments& arguments, const plan::Request& request) {
  const std::vector<plan::Advice> advice = plan::explain(request);
  if (!arguments.json) return tell(arguments, plan::to_text(advice));
  nlohmann::ordered_json steps = nlohmann::ordered_json::array();
  for (const plan::Advice& step : advice)
    steps.push_back({{"question", step.question},
                     {"answer", step.answer},
                     {"sets", step.sets},
                     {"taken", step.taken}});
  fmt::print("{}\n", nlohmann::ordered_json{{"advice", std::move(steps)}}.dump());
  return Exit::ok;
}

Exit tell_answer(const PlanArguments& arguments, const plan::Request& request,
                 const plan::Answer& answer) {
  std::string text = arguments.json ? plan::answer_json(request, answer) : answer.text;
  if (!arguments.json && answer.value > 0) text += "\n" + plan::plan_text(request, answer.plan);
  fmt::print("{}\n", text);
  return answer.value > 0 ? Exit::ok : Exit::memory;
}

// Questions that a time limit leaves without an answer; a search tells what it found until then.
template <class Body>
auto in_time(const PlanArguments& arguments, const Body& body) {
  try {
    const Deadline limit(arguments.seconds);
    return body();
  } catch (const OutOfTime&) {
    throw ConfigError(
        {.what =
             fmt::format("no answer within {} (--seconds)", to_text(Seconds{arguments.seconds})),
         .why = "a dry run of this model alone takes longer than that on this machine",
         .fix = fmt::format("--seconds {:.0f}, or --seconds 0 for no limit",
                            std::max(4 * arguments.seconds, 60.0))});
  }
}

// Questions with an answer of their own; empty: it was none of them.
std::optional<Exit> answer_command(const PlanArguments& arguments, const plan::Request& request) {
  const auto choice = [&] { return plan::choice_of(request.options, request.gpus); };
  const auto within = [&](const auto& body) { return in_time(arguments, body); };
  if (arguments.explain) return within([&] { return explain_command(arguments, request); });
  if (arguments.max_micro_batch)
    return tell_answer(arguments, request,
                       within([&] { return plan::largest_micro_batch(request, choice()); }));
  if (arguments.max_size)
    return tell_answer(arguments, request,
                       within([&] { return plan::largest_sequence(request, choice()); }));
  if (arguments.min_gpus) return tell_answer(arguments, request, plan::fewest_gpus(request));
  if (arguments.cheapest > 0)
    return tell_answer(arguments, request, plan::cheapest(request, arguments.cheapest));
  if (!arguments.scaling.empty()) {
    const plan::Scaling curve = plan::scaling(request, arguments.scaling);
    fmt::print("{}", arguments.json ? plan::scaling_json(request, curve) + "\n"
                                    : plan::scaling_text(request, curve));
    return Exit::ok;
  }
  if (!arguments.effect.empty()) {
    const plan::Effect effect = within([&] { return plan::effect_of(request, arguments.effect); });
    fmt::print("{}", arguments.json ? plan::effect_json(request, effect) + "\n"
                                    : plan::effect_text(request, effect));
    return Exit::ok;
  }
  return std::nullopt;
}

Exit plan_command(const PlanArguments& arguments) {
  check_flags(arguments);
  if (arguments.published)
    return tell(arguments, plan::published_table() + "\n" + plan::published_memory_table());
  need_config(arguments);
  if (arguments.term_by_term)
    return in_time(arguments,
                   [&] { return tell(arguments, plan::terms_text(arguments.config.load())); });
  if (arguments.verify) return verify_plan(arguments);
  const plan::Request request = plan_request(arguments);
  if (const auto answered = answer_command(arguments, request)) return *answered;
  const plan::Found found = arguments.as_is
                                ? in_time(arguments, [&] { return plan_as_is(request); })
                                : plan::search(request);
  end_plan_progress(arguments);
  const std::vector<std::string> written = write_plan_files(arguments, request, found);
  const bool fits = !found.plans.empty() && found.plans.front().fits;
  if (arguments.json) {
    fmt::print("{}\n", plan::found_json(request, found, static_cast<size_t>(arguments.top)));
  } else {
    fmt::print("{}", plan::table_text(request, found, static_cast<size_t>(arguments.top)));
    if (fits) fmt::print("\n{}", plan::plan_text(request, found.plans.front()));
    for (const std::string& file : written) fmt::print("wrote {}\n", file);
  }
  if (!fits) throw plan::no_plan_fits(request, found);
  return Exit::ok;
}

}  // namespace

void add_plan(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PlanArguments>();
  CLI::App* command = app.add_subcommand(
      "plan",
      "find which layouts of a config fit on a machine and how fast they run, without a GPU");
  add_plan_options(*command, *arguments);
  command->callback(
      [&action, arguments] { action = [arguments] { return plan_command(*arguments); }; });
}

}  // namespace braid::cli
