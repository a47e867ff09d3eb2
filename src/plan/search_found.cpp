// SPDX-License-Identifier: BSD-3-Clause
#include "plan/search_found.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/units.h"

namespace braid::plan {

double longest_seconds(const Request& request) {
  return request.seconds > 0 ? 1.2 * request.seconds + request.grace : 0;
}

void sort_plans(std::vector<Plan>& plans) {
  std::stable_sort(plans.begin(), plans.end(), [](const Plan& a, const Plan& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits ? a.time.samples_per_second > b.time.samples_per_second
                  : a.peak_bytes < b.peak_bytes;
  });
}

// As many as asked for; some of those that do not fit stay, to say why.
void cut_plans(std::vector<Plan>& plans, int64_t most) {
  const auto fitting =
      std::partition_point(plans.begin(), plans.end(), [](const Plan& plan) { return plan.fits; });
  const auto fit = static_cast<int64_t>(fitting - plans.begin());
  const auto missed = static_cast<int64_t>(plans.size()) - fit;
  most = std::max<int64_t>(most, 1);
  const int64_t misses = std::min(missed, std::max<int64_t>(most - fit, most / 4));
  plans.erase(plans.end() - (missed - misses), plans.end());
  const int64_t fits = std::min(fit, most - misses);
  plans.erase(plans.begin() + fits, plans.begin() + fit);
}

std::string late_note(const Found& found, const LeftOpen& left, double seconds) {
  const std::string stopped =
      fmt::format("stopped after {} (--seconds): {} not looked at", to_text(Seconds{seconds}),
                  left.choices == 1 ? std::string("1 choice was")
                                    : fmt::format("{} choices were", with_commas(left.choices)));
  if (found.plans.empty() || !found.plans.front().fits)
    return stopped + ", so a layout that fits may be among them";
  const double faster = left.fastest / found.plans.front().time.samples_per_second - 1;
  constexpr double no_bound = 1e6;  // a choice that was never looked at has no bound yet
  if (faster > no_bound) return stopped + ", and how fast they can be is not known";
  return fmt::format("{}, none can be more than {:.1f} % faster", stopped,
                     100 * std::max(0.0, faster));
}

Found nothing_in_time(double seconds) {
  Found nothing;
  nothing.late = true;
  nothing.seconds = seconds;
  nothing.notes.push_back(
      fmt::format("stopped after {} (--seconds), before all layouts of this model and number of "
                  "GPUs were listed",
                  to_text(Seconds{seconds})));
  return nothing;
}

}  // namespace braid::plan
