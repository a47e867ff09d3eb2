// SPDX-License-Identifier: BSD-3-Clause
// braid plan CONFIG --verify: the real step on the device that is here, beside its plan.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/comm/texts.h"
#include "braid/core/accelerator.h"
#include "braid/launch/environment.h"
#include "braid/plan/verify.h"
#include "braid/train/fit.h"
#include "braid/train/job.h"
#include "braid/train/session.h"
#include "cli/plan.h"
#include "cli/ranks.h"

namespace braid::cli {
namespace {

// Said by the first rank, for all.
Exit tell_verified(const PlanArguments& arguments, const plan::Verified& mine,
                   const train::Ranks& ranks) {
  const std::vector<std::string> texts = comm::exchange_texts(
      ranks.control, arguments.json ? plan::to_json(mine) : plan::to_text(mine));
  const std::vector<std::string> verdicts =
      comm::exchange_texts(ranks.control, mine.holds() ? "yes" : "no");
  const bool holds = std::find(verdicts.begin(), verdicts.end(), "no") == verdicts.end();
  const Exit code = holds ? Exit::ok : Exit::memory;
  if (!ranks.first()) return code;
  if (arguments.json) {
    nlohmann::ordered_json json = {{"holds", holds}, {"ranks", nlohmann::ordered_json::array()}};
    for (const std::string& text : texts)
      json["ranks"].push_back(nlohmann::ordered_json::parse(text));
    fmt::print("{}\n", json.dump());
    return code;
  }
  for (const std::string& text : texts) fmt::print("{}\n", text);
  fmt::print("{}\n", holds ? "memory is as planned, within 5 %"
                           : "memory deviates from the plan by more than 5 %");
  return code;
}

}  // namespace

Exit verify_plan(const PlanArguments& arguments) {
  train::RunOptions options = arguments.config.load();
  launch::Environment here = launch::environment();
  const auto world = static_cast<int>(arguments.gpus.value_or(1));
  if (world < 1)
    throw ConfigError({.what = fmt::format("--gpus {}", world),
                       .why = "a step runs on at least one",
                       .fix = "--gpus 1 or more"});
  const bool rank_already = here.world > 1;  // started below, or by a launcher
  if (world > 1 && !rank_already) train::check_ranks(options, world);
  if (const auto ended = start_ranks(rank_already || world == 1 ? 0 : world, here, options))
    return *ended;
  std::optional<plan::Cluster> cluster;
  if (!arguments.cluster.empty()) cluster = plan::load_cluster(arguments.cluster);
  train::Job job(options, here);
  return job.watched([&] {
    options = train::fit_to_memory(options, job.ranks()).options;
    const plan::Verified seen =
        plan::verify(options, {.device = train::device_of(options.train, job.ranks().gpu),
                               .ranks = &job.ranks(),
                               .cluster = cluster ? &*cluster : nullptr});
    return tell_verified(arguments, seen, job.ranks());
  });
}

}  // namespace braid::cli
