// SPDX-License-Identifier: BSD-3-Clause
// The dates that files are named by (1990, 199005, 1990-05, 19900517, ...), and which are absent.
// Internal.
#pragma once
#include <compare>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace braid::data {

struct FileDate {
  int64_t year = 0, month = 0, day = 0;  // month and day: 0 if the name has none
  auto operator<=>(const FileDate&) const = default;
};

std::optional<FileDate> date_of(const std::filesystem::path& file);  // at the end of its name
// A sentence for each stretch of absent years, months or days between the first and the last.
std::vector<std::string> absent_dates(std::vector<FileDate> dates);

}  // namespace braid::data
