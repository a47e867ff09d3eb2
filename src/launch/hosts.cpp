// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/hosts.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "braid/core/error.h"

namespace braid::launch {
namespace {

constexpr size_t most_hosts = 1 << 20;  // a list that says more is a typing error

ConfigError bad_list(std::string_view list) {
  return ConfigError({.what = fmt::format("\"{}\" is not a list of hosts", list),
                      .why = "names stand between commas or blanks, numbers in brackets as in "
                             "n[1-3,07]",
                      .fix = "set MASTER_ADDR to the host of rank 0, or correct the list"});
}

std::optional<int> list_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0)
    return std::nullopt;
  return number;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    const bool end = i == text.size();
    if (!end && text[i] == '[') ++depth;
    if (!end && text[i] == ']') --depth;
    if (!end && (depth != 0 || separators.find(text[i]) == std::string_view::npos)) continue;
    if (i > begin) parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return parts;
}

// "08-10" as 08, 09, 10.
void append_range(std::string_view range, std::string_view list, std::vector<std::string>& into) {
  const size_t dash = range.find('-');
  const std::string_view first = range.substr(0, dash);
  const auto begin = list_number(first);
  const auto end = dash == std::string_view::npos ? begin : list_number(range.substr(dash + 1));
  if (!begin || !end || *end < *begin || static_cast<size_t>(*end - *begin) > most_hosts)
    throw bad_list(list);
  for (int number = *begin; number <= *end; ++number)
    into.push_back(fmt::format("{:0{}}", number, first.size()));
}

std::vector<std::string> expand_name(std::string_view name, std::string_view list) {
  const size_t open = name.find('[');
  if (open == std::string_view::npos) {
    if (name.find(']') != std::string_view::npos) throw bad_list(list);
    return {std::string(name)};
  }
  const size_t close = name.find(']', open);
  if (close == std::string_view::npos) throw bad_list(list);
  std::vector<std::string> numbers;
  for (const std::string_view range : split_at(name.substr(open + 1, close - open - 1), ","))
    append_range(range, list, numbers);
  if (numbers.empty()) throw bad_list(list);
  const std::vector<std::string> rest = expand_name(name.substr(close + 1), list);
  if (numbers.size() * rest.size() > most_hosts) throw bad_list(list);
  std::vector<std::string> hosts;
  for (const std::string& number : numbers)
    for (const std::string& tail : rest)
      hosts.push_back(fmt::format("{}{}{}", name.substr(0, open), number, tail));
  return hosts;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> hosts;
  for (const std::string_view name : split_at(list, ", \t\r\n"))
    for (std::string& host : expand_name(name, list)) hosts.push_back(std::move(host));
  return hosts;
}

std::vector<int> expand_counts(std::string_view list) {
  std::vector<int> counts;
  for (const std::string_view part : split_at(list, ",")) {
    const size_t times = part.find("(x");
    const auto count = list_number(part.substr(0, times));
    std::optional<int> repeat = 1;
    if (times != std::string_view::npos)
      repeat = part.back() == ')' ? list_number(part.substr(times + 2, part.size() - times - 3))
                                  : std::nullopt;
    if (!count || !repeat || counts.size() + static_cast<size_t>(*repeat) > most_hosts)
      throw bad_list(list);
    counts.insert(counts.end(), static_cast<size_t>(*repeat), *count);
  }
  return counts;
}

}  // namespace braid::launch
