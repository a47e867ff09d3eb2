// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace braid {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// Bare letters (16G) and bits (Mb) are left out: one cannot tell 10^9 from 2^30, or bits from
// bytes.
constexpr std::array<Unit, 12> kByteUnits = {{{"B", 1.0},
                                              {"kB", 1e3},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12},
                                              {"PB", 1e15},
                                              {"KiB", 0x1p10},
                                              {"MiB", 0x1p20},
                                              {"GiB", 0x1p30},
                                              {"TiB", 0x1p40},
                                              {"PiB", 0x1p50}}};

// From large to small: 1h30m, never 30m1h.
constexpr std::array<Unit, 6> kTimeUnits = {
    {{"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Takes out the underscores between digits (30_000) and a leading plus; nullopt for any other
// underscore.
std::optional<std::string> plain_digits(std::string_view text) {
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool between =
        i > 0 && is_digit(text[i - 1]) && i + 1 < text.size() && is_digit(text[i + 1]);
    if (!between) return std::nullopt;
  }
  return digits;
}

template <class Number>
std::optional<Number> read_all(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "-1.5e3" as sign, digits and exponent: -, 15, 2.
struct Decimal {
  bool negative = false;
  std::string digits;
  int64_t exponent = 0;
};

std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal decimal;
  if (text.starts_with('-')) {
    decimal.negative = true;
    text.remove_prefix(1);
  }
  if (const size_t e = text.find_first_of("eE"); e != text.npos) {
    std::string_view power = text.substr(e + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    const auto exponent = read_all<int16_t>(power);
    if (!exponent) return std::nullopt;
    decimal.exponent = *exponent;
    text = text.substr(0, e);
  }
  bool fraction = false;
  for (const char c : text) {
    if (c == '.' && !fraction) {
      fraction = true;
    } else if (is_digit(c)) {
      decimal.digits += c;
      decimal.exponent -= fraction ? 1 : 0;
    } else {
      return std::nullopt;
    }
  }
  if (decimal.digits.empty()) return std::nullopt;
  return decimal;
}

// Splits "1.5 GiB" into 1.5 and the word after it.
std::optional<std::pair<double, std::string_view>> split_quantity(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && is_letter(text[end - 1])) --end;
  const auto number = parse_number(trimmed(text.substr(0, end)));
  if (!number) return std::nullopt;
  return std::pair{*number, text.substr(end)};
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text) {
  const auto plain = plain_digits(trimmed(text));
  if (!plain) return std::nullopt;
  if (const auto value = read_all<int64_t>(*plain)) return value;
  // By digits and not through a double, which would round 9007199254740993e0.
  auto decimal = read_decimal(*plain);
  if (!decimal) return std::nullopt;
  std::string& digits = decimal->digits;
  while (digits.size() > 1 && digits.back() == '0') {
    digits.pop_back();
    ++decimal->exponent;
  }
  if (digits == "0") return 0;
  if (decimal->exponent < 0 || decimal->exponent > 18) return std::nullopt;
  digits.append(static_cast<size_t>(decimal->exponent), '0');
  return read_all<int64_t>((decimal->negative ? "-" : "") + digits);
}

std::optional<double> parse_number(std::string_view text) {
  const auto plain = plain_digits(trimmed(text));
  if (!plain || !read_decimal(*plain)) return std::nullopt;  // from_chars alone would take inf, nan
  const auto value = read_all<double>(*plain);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<Bytes> parse_bytes(std::string_view text) {
  text = trimmed(text);
  if (const auto count = parse_integer(text)) {
    if (*count < 0) return std::nullopt;
    return Bytes{*count};
  }
  const auto quantity = split_quantity(text);
  if (!quantity || quantity->first < 0) return std::nullopt;
  for (const Unit& unit : kByteUnits) {
    if (unit.name != quantity->second) continue;
    const double count = std::round(quantity->first * unit.factor);
    const bool fits = count < 0x1p63;
    const bool whole = unit.factor > 1 || count == quantity->first;
    if (!fits || !whole) return std::nullopt;
    return Bytes{static_cast<int64_t>(count)};
  }
  return std::nullopt;
}

std::optional<Seconds> parse_seconds(std::string_view text) {
  text = trimmed(text);
  if (const auto count = parse_number(text)) {
    if (*count < 0) return std::nullopt;
    return Seconds{*count};
  }
  double total = 0;
  size_t next_unit = 0;
  while (!text.empty()) {
    const size_t number_end = text.find_first_not_of("0123456789._");
    if (number_end == 0 || number_end == text.npos) return std::nullopt;
    const auto number = parse_number(text.substr(0, number_end));
    text = trimmed(text.substr(number_end));
    size_t word_end = 0;
    while (word_end < text.size() && is_letter(text[word_end])) ++word_end;
    const std::string_view word = text.substr(0, word_end);
    while (next_unit < kTimeUnits.size() && kTimeUnits[next_unit].name != word) ++next_unit;
    if (!number || next_unit == kTimeUnits.size()) return std::nullopt;
    total += *number * kTimeUnits[next_unit++].factor;
    text = trimmed(text.substr(word_end));
  }
  if (next_unit == 0) return std::nullopt;
  return Seconds{total};
}

std::string to_text(Bytes bytes) {
  constexpr std::array<std::string_view, 7> names = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (bytes.count > -1024 && bytes.count < 1024) return fmt::format("{} B", bytes.count);
  double value = static_cast<double>(bytes.count);
  size_t unit = 0;
  while (std::abs(value) >= 1023.995 &&
         unit + 1 < names.size()) {  // 1023.996 would print as 1024.00
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.2f} {}", value, names[unit]);
}

std::string to_text(Seconds seconds) {
  const double count = seconds.count;
  if (count < 0) return "-" + to_text(Seconds{-count});
  if (!std::isfinite(count)) return fmt::format("{} s", count);
  if (count == 0) return "0 s";
  if (count < 0.9995e-3) return fmt::format("{:.3g} us", count * 1e6);
  if (count < 0.9995) return fmt::format("{:.3g} ms", count * 1e3);
  if (count < 59.95) return fmt::format("{:.3g} s", count);
  // Two neighbouring units: the smaller of them is where the value is rounded.
  for (size_t big = 0; big < 3; ++big) {
    const double small_factor = kTimeUnits[big + 1].factor;
    const auto whole = static_cast<int64_t>(std::llround(count / small_factor));
    const auto ratio = static_cast<int64_t>(kTimeUnits[big].factor / small_factor);
    if (whole < ratio) continue;
    std::string text = fmt::format("{}{}", whole / ratio, kTimeUnits[big].name);
    if (whole % ratio != 0) text += fmt::format("{}{}", whole % ratio, kTimeUnits[big + 1].name);
    return text;
  }
  return fmt::format("{:.3g} s", count);
}

std::string exact_text(Bytes bytes) {
  for (size_t i = kByteUnits.size(); i-- > 7;) {
    const auto factor = static_cast<int64_t>(kByteUnits[i].factor);
    if (bytes.count > 0 && bytes.count % factor == 0)
      return fmt::format("{} {}", bytes.count / factor, kByteUnits[i].name);
  }
  return fmt::format("{}", bytes.count);
}

std::string exact_text(Seconds seconds) {
  std::string plain = fmt::format("{}", seconds.count);
  for (const std::string& text : {to_text(seconds), plain + "s"})
    if (parse_seconds(text) == seconds) return text;
  return plain;  // 1e-07
}

std::string exact_text(double number) { return fmt::format("{}", number); }

std::string with_commas(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t i = digits.size(); i > first + 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string with_prefix(double number, std::string_view unit) {
  constexpr std::string_view prefixes = "num kMGTPE";
  constexpr size_t kNone = 3;
  if (number == 0 || !std::isfinite(number))
    return fmt::format("{}{}{}", number, unit.empty() ? "" : " ", unit);
  size_t at = kNone;
  while (std::abs(number) >= 999.5 && at + 1 < prefixes.size()) {
    number /= 1000;
    ++at;
  }
  while (std::abs(number) < 0.9995 && at > 0) {
    number *= 1000;
    --at;
  }
  const std::string word = (at == kNone ? "" : std::string(1, prefixes[at])) + std::string(unit);
  return fmt::format("{:.3g}{}{}", number, word.empty() ? "" : " ", word);
}

}  // namespace braid
