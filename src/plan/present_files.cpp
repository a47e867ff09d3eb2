// SPDX-License-Identifier: BSD-3-Clause
// Files that a plan leaves behind, and the sentence when there is none to leave.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/units.h"
#include "plan/present_json.h"

namespace braid::plan {
namespace {

std::string leading_kind(const RankPeak& peak) {
  const auto most = std::max_element(peak.by_kind.begin(), peak.by_kind.end());
  const auto kind = static_cast<MemoryKind>(most - peak.by_kind.begin());
  return fmt::format(
      "{:.0f} % of it {}",
      100.0 * static_cast<double>(*most) / static_cast<double>(std::max<int64_t>(peak.bytes, 1)),
      to_text(kind));
}

const RankPeak* fullest_rank(const Plan& plan) {
  const auto most =
      std::max_element(plan.peaks.begin(), plan.peaks.end(),
                       [](const RankPeak& a, const RankPeak& b) { return a.device < b.device; });
  return most == plan.peaks.end() ? nullptr : &*most;
}

const Plan* nearest_plan(const Found& found) {
  const Plan* nearest = nullptr;
  for (const Plan& plan : found.plans)
    if (plan.peak_bytes > 0 && (nearest == nullptr || plan.peak_bytes < nearest->peak_bytes))
      nearest = &plan;
  return nearest;
}

// What the search found to help, then what the request itself holds back.
std::string what_helps(const Request& request, const Found& found, const Plan& plan) {
  constexpr std::string_view mark = "what would help: ";
  std::vector<std::string> ways;
  for (const std::string& note : found.notes)
    if (note.starts_with(mark)) ways.push_back(note.substr(mark.size()));
  if (ways.empty())
    ways.push_back(fmt::format("more GPUs (--min-gpus says how many), or GPUs with {}",
                               to_text(Bytes{plan.peak_bytes})));
  if (request.memory > 0 && request.memory < request.cluster.gpu.memory.count)
    ways.push_back(fmt::format("the GPU has {} in all: --memory {}",
                               to_text(request.cluster.gpu.memory),
                               exact_text(request.cluster.gpu.memory)));
  if (!request.offload) ways.emplace_back("leave out --no-offload");
  if (precision_word(plan) == "fp32" || precision_word(plan) == "fp64")
    ways.emplace_back("--precision bf16");
  return fmt::format("{}", fmt::join(ways, "; "));
}

std::string limit_note(const Found& found) {
  for (const std::string& note : found.notes)
    if (note.starts_with("stopped after")) return note;
  return "the time limit ended the search";
}

}  // namespace

MemoryError no_plan_fits(const Request& request, const Found& found) {
  const Plan* nearest = nearest_plan(found);
  const std::string who = fmt::format("{} on {} x {}", model_word(request.options), request.gpus,
                                      request.cluster.gpu.name);
  if (found.late)
    return MemoryError({.what = fmt::format("{}: no layout that fits was found in {}", who,
                                            to_text(Seconds{found.seconds})),
                        .why = limit_note(found),
                        .fix = "more time (--seconds 600, or 0 for no limit), or more GPUs"});
  if (nearest == nullptr)
    return MemoryError(
        {.what = fmt::format("{}: none of {} choices fits into {}", who, with_commas(found.choices),
                             to_text(Bytes{memory_limit(request)})),
         .why = found.notes.empty() ? "a bound on the bytes of each of them is above that"
                                    : found.notes.back(),
         .fix = "more GPUs (braid plan --min-gpus), or more --memory"});
  const RankPeak* peak = fullest_rank(*nearest);
  return MemoryError(
      {.what = fmt::format("{} does not fit: the nearest, {}, lacks {} of {}", who,
                           to_text(nearest->choice),
                           to_text(Bytes{nearest->peak_bytes - memory_limit(request)}),
                           to_text(Bytes{memory_limit(request)})),
       .why = peak == nullptr ? fmt::format("its peak is {}", to_text(Bytes{nearest->peak_bytes}))
                              : fmt::format("the peak of {} is {} at the {}, {}",
                                            peak->name == "all" ? "a rank" : "the " + peak->name,
                                            to_text(Bytes{nearest->peak_bytes}), peak->moment,
                                            leading_kind(*peak)),
       .fix = what_helps(request, found, *nearest)});
}

std::string config_text(const Request& request, const Plan& plan) {
  const StepTime& time = plan.time;
  const bool tokens = time.tokens_per_second > 0;
  const std::string spec = request.options.run.spec;
  std::string text = fmt::format(
      "# braid train FILE --ranks {} (or under srun, mpirun, torchrun)\n"
      "# Written by: braid plan {} --cluster {} --gpus {}\n"
      "# {}\n"
      "# predicted: {} of {} a GPU, {} a step, {} {}/s on {} x {}\n",
      request.gpus, spec.empty() ? "CONFIG" : spec, request.cluster.name, request.gpus,
      to_text(plan.choice), to_text(Bytes{plan.peak_bytes}), to_text(Bytes{memory_limit(request)}),
      to_text(Seconds{time.seconds}),
      with_prefix(tokens ? time.tokens_per_second : time.samples_per_second, ""),
      tokens ? "tokens" : "samples", request.gpus, request.cluster.gpu.name);
  return text + train::resolved_yaml(plan.options);
}

std::string run_json(const Request& request, const Plan& plan) {
  Json ranks = Json::array();
  for (const RankPeak& peak : plan.peaks)
    ranks.push_back({{"name", peak.name},
                     {"bytes", peak.bytes},
                     {"reserved", peak.reserved},
                     {"device", peak.device},
                     {"moment", peak.moment},
                     {"by_category", kinds_object(peak.by_kind)}});
  const Json json = {{"device", "cuda"},
                     {"layout", to_text(plan.choice)},
                     {"gpus", request.gpus},
                     {"step_seconds", plan.time.seconds},
                     {"parts", parts_object(plan.time.parts)},
                     {"ranks", std::move(ranks)},
                     {"request", request_object(request)},
                     {"cluster", cluster_object(request.cluster)}};
  return json.dump(1) + "\n";
}

}  // namespace braid::plan
