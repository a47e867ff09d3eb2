// SPDX-License-Identifier: BSD-3-Clause
#include "data/file_dates.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "data/calendar.h"

namespace braid::data {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The groups of digits at the end of a name, split at single separators: 2010-05 is two.
std::vector<std::string> last_groups(const std::string& stem) {
  std::vector<std::string> groups;
  size_t end = stem.size();
  while (end > 0 && groups.size() < 3) {
    size_t begin = end;
    while (begin > 0 && is_digit(stem[begin - 1])) --begin;
    if (begin == end) break;
    groups.insert(groups.begin(), stem.substr(begin, end - begin));
    if (begin == 0 || (stem[begin - 1] != '-' && stem[begin - 1] != '_')) break;
    end = begin - 1;
  }
  return groups;
}

std::optional<FileDate> valid(int64_t year, int64_t month, int64_t day) {
  if (month > 12 || day > 31) return std::nullopt;
  return FileDate{year, month, day};
}

std::optional<FileDate> date_in(const std::vector<std::string>& groups) {
  const auto size = [&](size_t from_end) {
    return groups.size() >= from_end ? groups[groups.size() - from_end].size() : 0;
  };
  const auto number = [&](size_t from_end, size_t at, size_t count) {
    return std::stoll(groups[groups.size() - from_end].substr(at, count));
  };
  if (size(1) == 8) return valid(number(1, 0, 4), number(1, 4, 2), number(1, 6, 2));
  if (size(1) == 6) return valid(number(1, 0, 4), number(1, 4, 2), 0);
  if (size(3) == 4 && size(2) == 2 && size(1) == 2)
    return valid(number(3, 0, 4), number(2, 0, 2), number(1, 0, 2));
  if (size(2) == 4 && size(1) == 2) return valid(number(2, 0, 4), number(1, 0, 2), 0);
  if (size(1) == 4) return valid(number(1, 0, 4), 0, 0);
  return std::nullopt;
}

int64_t days_in(int64_t year, int64_t month) {
  constexpr auto kind = Calendar::proleptic_gregorian;
  const bool last = month == 12;
  return day_number(kind, last ? year + 1 : year, last ? 1 : month + 1, 1) -
         day_number(kind, year, month, 1);
}

FileDate next_date(FileDate date) {
  if (date.day > 0) {
    ++date.day;
    if (date.day <= days_in(date.year, date.month)) return date;
    date.day = 1;
  }
  if (date.month > 0) {
    ++date.month;
    if (date.month <= 12) return date;
    date.month = 1;
  }
  ++date.year;
  return date;
}

std::string date_text(const FileDate& date) {
  if (date.month == 0) return fmt::format("{}", date.year);
  if (date.day == 0) return fmt::format("{:04}-{:02}", date.year, date.month);
  return fmt::format("{:04}-{:02}-{:02}", date.year, date.month, date.day);
}

std::string stretch_text(const FileDate& first, const FileDate& last) {
  const char* unit = first.month == 0 ? "year" : first.day == 0 ? "month" : "day";
  if (first == last) return fmt::format("{} {} is missing", unit, date_text(first));
  return fmt::format("{}s {} to {} are missing", unit, date_text(first), date_text(last));
}

// Dates of one kind, sorted.
void add_absent(const std::vector<FileDate>& dates, std::vector<std::string>& absent) {
  for (size_t i = 1; i < dates.size(); ++i) {
    FileDate first = next_date(dates[i - 1]);
    if (first.month == 2 && first.day == 29) first = next_date(first);  // not in every calendar
    if (first >= dates[i]) continue;
    FileDate last = first;
    for (FileDate date = first; date < dates[i]; date = next_date(date)) last = date;
    absent.push_back(stretch_text(first, last));
  }
}

}  // namespace

std::optional<FileDate> date_of(const std::filesystem::path& file) {
  return date_in(last_groups(file.stem().string()));
}

std::vector<std::string> absent_dates(std::vector<FileDate> dates) {
  std::ranges::sort(dates);
  const auto kind_of = [](const FileDate& date) { return (date.month > 0) + (date.day > 0); };
  std::vector<std::string> absent;
  for (const int kind : {0, 1, 2}) {
    std::vector<FileDate> of_kind;
    std::ranges::copy_if(dates, std::back_inserter(of_kind),
                         [&](const FileDate& date) { return kind_of(date) == kind; });
    add_absent(of_kind, absent);
  }
  return absent;
}

}  // namespace braid::data
