// SPDX-License-Identifier: BSD-3-Clause
#include "data/time_axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace braid::data {

TimeAxis time_axis_of(const Axis& axis) {
  TimeAxis times{.values = axis.values, .units = axis.units, .calendar = axis.calendar};
  const auto units = parse_time_units(axis.units, axis.calendar);
  if (!units || !std::ranges::all_of(axis.values, [](double x) { return std::isfinite(x); }))
    return times;
  times.kind = units->calendar;
  for (const double value : axis.values) times.seconds.push_back(units->seconds(value));
  return times;
}

double usual_step(const std::vector<double>& seconds) {
  std::vector<double> steps;
  for (size_t i = 1; i < seconds.size(); ++i)
    if (seconds[i] > seconds[i - 1]) steps.push_back(seconds[i] - seconds[i - 1]);
  if (steps.empty()) return 0;
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>((steps.size() - 1) / 2);
  std::ranges::nth_element(steps, middle);
  return *middle;
}

bool is_next(double before, double after, double step) {
  const double passed = after - before;
  return passed > 0.5 * step && passed < 1.5 * step;
}

std::string duration_text(double seconds) {
  const auto text = [](double count, const char* unit) {
    return fmt::format("{:.4g} {}{}", count, unit, count == 1 ? "" : "s");
  };
  if (seconds >= 86'400) return text(seconds / 86'400, "day");
  if (seconds >= 3600) return text(seconds / 3600, "hour");
  return seconds >= 60 ? text(seconds / 60, "minute") : text(seconds, "second");
}

}  // namespace braid::data
