// SPDX-License-Identifier: BSD-3-Clause
// What one change of a config does.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "braid/core/config.h"
#include "braid/core/error.h"
#include "braid/train/layout.h"
#include "plan/search_evaluate.h"

namespace braid::plan {
namespace {

train::RunOptions changed(const train::RunOptions& options, const std::vector<std::string>& sets) {
  Config config = Config::parse(train::resolved_yaml(options), "the config as it is");
  for (const std::string& set : sets) {
    const size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      throw ConfigError({.what = "the change \"" + set + "\"",
                         .why = "a change is a path and a value",
                         .fix = "--set train.zero=2"});
    config.set(set.substr(0, equals), set.substr(equals + 1));
  }
  auto read = read_options<train::RunOptions>(config);
  read.run.spec = options.run.spec;
  train::check(read);
  return read;
}

std::string change_text(double before, double after, const char* less, const char* more) {
  if (before <= 0) return "";
  const double share = after / before - 1;
  if (std::abs(share) < 5e-4) return "the same";
  return fmt::format("{:.{}f} % {}", 100 * std::abs(share), std::abs(share) < 0.1 ? 1 : 0,
                     share < 0 ? less : more);
}

std::string effect_text(const Plan& before, const Plan& after) {
  const auto step = [](const Plan& plan) { return to_text(Seconds{plan.time.seconds}); };
  const auto faster = change_text(before.time.samples_per_second, after.time.samples_per_second,
                                  "slower", "faster");
  const auto memory = change_text(static_cast<double>(before.peak_bytes),
                                  static_cast<double>(after.peak_bytes), "less", "more");
  std::string text =
      fmt::format("step {} -> {} ({}); memory {} -> {} ({})", step(before), step(after), faster,
                  size_text(before.peak_bytes), size_text(after.peak_bytes), memory);
  if (before.fits && !after.fits) text += "; it no longer fits";
  if (!before.fits && after.fits) text += "; now it fits";
  if (!before.fits && !after.fits) text += "; neither fits";
  return text;
}

}  // namespace

Effect effect_of(const Request& request, const std::vector<std::string>& sets) {
  const Base base = base_of(request);
  train::RunOptions now = request.options;
  if (request.global_batch > 0) {
    now.train.global_batch = request.global_batch;
    now.train.local_batch.reset();
  }
  now.memory.limit = {};
  Evaluator evaluator(request, base);
  Effect effect;
  effect.sets = fmt::format("--set {}", fmt::join(sets, " --set "));
  effect.before = evaluator.plan(now, request.gpus);
  effect.after = evaluator.plan(changed(now, sets), request.gpus);
  for (Plan* plan : {&effect.before, &effect.after})
    plan->reason = reason_of(*plan, nullptr, base.room);
  effect.text = effect_text(effect.before, effect.after);
  return effect;
}

}  // namespace braid::plan
