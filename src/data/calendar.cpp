// SPDX-License-Identifier: BSD-3-Clause
#include "data/calendar.h"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace braid::data {
namespace {

constexpr double day_seconds = 86'400;
constexpr double year_days = 365.242198781;  // of UDUNITS, which CF takes its units from

struct DateTime {
  int64_t year = 0, month = 1, day = 1;
  double seconds = 0;  // of the day, in UTC
};

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// Days before the month in years whose February has 28 days.
int64_t days_before(int64_t month) {
  constexpr std::array<int64_t, 12> days = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  return days[static_cast<size_t>(month - 1)];
}

int64_t julian_day(int64_t year, int64_t month, int64_t day, bool gregorian) {
  const int64_t y = month > 2 ? year : year - 1;  // leap days are those of years that have ended
  int64_t leaps = floor_div(y, 4);
  if (gregorian) leaps += floor_div(y, 400) - floor_div(y, 100) + 2;  // both agree from 200 to 300
  return 365 * year + leaps + days_before(month) + day - 1;
}

double unit_seconds(std::string_view name, Calendar calendar) {
  constexpr std::pair<std::string_view, double> units[] = {{"nanosecond", 1e-9},
                                                           {"microsecond", 1e-6},
                                                           {"millisecond", 1e-3},
                                                           {"msec", 1e-3},
                                                           {"second", 1},
                                                           {"sec", 1},
                                                           {"s", 1},
                                                           {"minute", 60},
                                                           {"min", 60},
                                                           {"hour", 3600},
                                                           {"hr", 3600},
                                                           {"h", 3600},
                                                           {"day", day_seconds},
                                                           {"d", day_seconds},
                                                           {"week", 7 * day_seconds}};
  std::string_view single = name;
  if (single.size() > 1 && single.ends_with('s')) single.remove_suffix(1);
  for (const auto& [word, seconds] : units)
    if (single == word || name == word) return seconds;
  const double year = calendar == Calendar::days_360 ? 360 : year_days;
  if (single == "month" || single == "mon") return year / 12 * day_seconds;
  if (single == "year" || single == "yr" || single == "common_year")
    return (single == "common_year" ? 365 : year) * day_seconds;
  return 0;
}

// "+01:00", "-0630", "+1", "Z", "UTC" or nothing: seconds east of Greenwich.
std::optional<double> parse_zone(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  if (text.empty() || text == "Z" || text == "UTC" || text == "GMT") return 0;
  if (text[0] != '+' && text[0] != '-') return std::nullopt;
  const std::string digits(text.substr(1));
  int hours = 0, minutes = 0, used = 0;
  if (std::sscanf(digits.c_str(), "%2d:%2d%n", &hours, &minutes, &used) < 2 &&
      std::sscanf(digits.c_str(), "%2d%2d%n", &hours, &minutes, &used) < 2) {
    minutes = 0;
    if (std::sscanf(digits.c_str(), "%2d%n", &hours, &used) < 1) return std::nullopt;
  }
  const double seconds = hours * 3600.0 + minutes * 60.0;
  return text[0] == '-' ? -seconds : seconds;
}

std::optional<DateTime> parse_date(const std::string& text) {
  long year = 0, month = 1, day = 1;
  int used = 0, hours = 0, minutes = 0;
  double seconds = 0;
  if (std::sscanf(text.c_str(), "%ld-%ld-%ld%n", &year, &month, &day, &used) < 3)
    return std::nullopt;
  if (month < 1 || month > 12 || day < 1 || day > 31 || std::labs(year) > 1'000'000)
    return std::nullopt;
  std::string rest = text.substr(static_cast<size_t>(used));
  if (!rest.empty() && (rest[0] == 'T' || rest[0] == 't')) rest[0] = ' ';
  used = 0;
  if (std::sscanf(rest.c_str(), " %2d:%2d:%lf%n", &hours, &minutes, &seconds, &used) < 3 ||
      used == 0) {
    seconds = 0, used = 0;
    if (std::sscanf(rest.c_str(), " %2d:%2d%n", &hours, &minutes, &used) < 2 || used == 0) {
      hours = minutes = used = 0;
      if (std::sscanf(rest.c_str(), " %2d%n", &hours, &used) < 1) hours = used = 0;
    }
  }
  const auto zone = parse_zone(std::string_view(rest).substr(static_cast<size_t>(used)));
  if (!zone) return std::nullopt;
  return DateTime{year, month, day, hours * 3600.0 + minutes * 60.0 + seconds - *zone};
}

}  // namespace

std::optional<Calendar> parse_calendar(const std::string& name) {
  constexpr std::pair<std::string_view, Calendar> names[] = {
      {"", Calendar::standard},          {"standard", Calendar::standard},
      {"gregorian", Calendar::standard}, {"proleptic_gregorian", Calendar::proleptic_gregorian},
      {"julian", Calendar::julian},      {"noleap", Calendar::noleap},
      {"365_day", Calendar::noleap},     {"all_leap", Calendar::all_leap},
      {"366_day", Calendar::all_leap},   {"360_day", Calendar::days_360}};
  for (const auto& [word, calendar] : names)
    if (word == name) return calendar;
  return std::nullopt;
}

int64_t day_number(Calendar calendar, int64_t year, int64_t month, int64_t day) {
  switch (calendar) {
    case Calendar::noleap:
      return 365 * year + days_before(month) + day - 1;
    case Calendar::all_leap:
      return 366 * year + days_before(month) + (month > 2 ? 1 : 0) + day - 1;
    case Calendar::days_360:
      return 360 * year + 30 * (month - 1) + day - 1;
    case Calendar::julian:
      return julian_day(year, month, day, /*gregorian=*/false);
    case Calendar::proleptic_gregorian:
      return julian_day(year, month, day, /*gregorian=*/true);
    case Calendar::standard:
      break;
  }
  const bool reformed =
      std::pair(year * 100 + month, day) >= std::pair<int64_t, int64_t>(158210, 15);
  return julian_day(year, month, day, reformed);
}

std::optional<TimeUnits> parse_time_units(const std::string& units, const std::string& calendar) {
  const size_t since = units.find(" since ");
  const auto kind = parse_calendar(calendar);
  if (since == std::string::npos || !kind) return std::nullopt;
  std::string name = units.substr(0, since);
  while (name.starts_with(' ')) name.erase(0, 1);
  while (name.ends_with(' ')) name.pop_back();
  for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  const double unit = unit_seconds(name, *kind);
  std::string from = units.substr(since + 7);
  while (from.starts_with(' ')) from.erase(0, 1);
  const auto date = parse_date(from);
  if (unit == 0 || !date) return std::nullopt;
  const auto days = static_cast<double>(day_number(*kind, date->year, date->month, date->day));
  return TimeUnits{*kind, unit, days * day_seconds + date->seconds};
}

}  // namespace braid::data
