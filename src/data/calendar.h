// SPDX-License-Identifier: BSD-3-Clause
// Times as netCDF writes them: "hours since 1900-01-01" in one of the calendars of CF. Internal.
//
//   const auto units = parse_time_units("hours since 1900-01-01 00:00", "noleap");
//   const double seconds = units->seconds(12);     // comparable among times of one calendar
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace braid::data {

enum class Calendar { standard, proleptic_gregorian, julian, noleap, all_leap, days_360 };

std::optional<Calendar> parse_calendar(const std::string& name);  // "": standard
// Days since the year 0 of the calendar's own count.
int64_t day_number(Calendar calendar, int64_t year, int64_t month, int64_t day);

struct TimeUnits {
  Calendar calendar = Calendar::standard;
  double unit = 1;    // seconds
  double origin = 0;  // seconds
  double seconds(double value) const { return origin + value * unit; }
};
// Nothing if the units or the calendar cannot be understood.
std::optional<TimeUnits> parse_time_units(const std::string& units, const std::string& calendar);

}  // namespace braid::data
