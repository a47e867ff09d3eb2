// SPDX-License-Identifier: BSD-3-Clause
// Numbers and curves as the script of report.html reads them.
#pragma once
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "report/curves.h"

namespace braid::report {

using PageJson = nlohmann::ordered_json;

// Six digits are more than a screen shows, and a third of the bytes.
inline PageJson rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  const std::string digits = fmt::format("{:.6g}", value);
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

inline PageJson json_of(const Curve& curve) {
  PageJson seconds = PageJson::array(), value = PageJson::array();
  for (const double x : curve.seconds) seconds.push_back(rounded(x));
  for (const double x : curve.value) value.push_back(rounded(x));
  return {{"s", curve.step}, {"t", std::move(seconds)}, {"v", std::move(value)}};
}

}  // namespace braid::report
