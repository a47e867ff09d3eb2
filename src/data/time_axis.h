// SPDX-License-Identifier: BSD-3-Clause
// When the frames of a file were, and which frames directly follow each other. Internal.
//
//   const TimeAxis times = time_axis_of(axis);
//   const double step = usual_step(times.seconds);             // 21600
//   is_next(times.seconds[3], times.seconds[4], step);         // false: a gap
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "data/axes.h"
#include "data/calendar.h"

namespace braid::data {

struct TimeAxis {
  std::vector<double> values = {};  // as in the file; empty: it has no times
  std::string units = {}, calendar = {};
  std::vector<double> seconds = {};  // empty: there are none, or their units are unknown
  std::optional<Calendar> kind = {};
};

TimeAxis time_axis_of(const Axis& axis);

// The middle one of the differences between neighbours that are not equal; 0 if there is none.
double usual_step(const std::vector<double>& seconds);
// Months and years differ in length, so half of a step more or less is no gap.
bool is_next(double before, double after, double step);

std::string duration_text(double seconds);  // 6 hours, 1 day, 30.4 days

}  // namespace braid::data
