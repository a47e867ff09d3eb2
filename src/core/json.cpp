// SPDX-License-Identifier: BSD-3-Clause
#include "core/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

namespace braid {
namespace {

using nlohmann::json;

int depth_of(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quoted && letter == '\\') {
      ++i;
    } else if (letter == '"') {
      quoted = !quoted;
    } else if (!quoted && (letter == '[' || letter == '{')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (letter == ']' || letter == '}')) {
      --depth;
    }
  }
  return deepest;
}

std::string json_shown(const json& value) {
  constexpr size_t longest = 40;
  if (value.is_structured()) return fmt::format("an {}", value.type_name());
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest) + "...";
}

// Refuses keys that occur twice in one object.
class KeyWatch {
 public:
  bool operator()(int, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) objects_.emplace_back();
    if (event == json::parse_event_t::object_end) objects_.pop_back();
    if (event == json::parse_event_t::key &&
        !objects_.back().insert(parsed.get<std::string>()).second)
      throw JsonFault(fmt::format("{} occurs twice", json_shown(parsed)));
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>> objects_;
};

}  // namespace

json parse_json(std::string_view text, JsonKeys keys) {
  const int depth = depth_of(text);
  if (depth > most_nested_json)
    throw JsonFault(fmt::format("its JSON is nested {} levels deep, at most {} are read", depth,
                                most_nested_json));
  try {
    return keys == JsonKeys::unique ? json::parse(text, KeyWatch()) : json::parse(text);
  } catch (const json::exception& error) {
    throw JsonFault(json_fault(error));
  }
}

int64_t integer_of(const json& value, std::string_view name) {
  constexpr auto most = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() > most))
    throw JsonFault(fmt::format("{} is {}, a 64-bit integer is needed", name, json_shown(value)));
  return value.get<int64_t>();
}

std::string json_fault(const std::exception& error) {
  std::string text = error.what();
  if (!text.starts_with("[json.exception.")) return text;
  text.erase(0, text.find("] ") + 2);
  constexpr std::string_view at = "parse error at ", misuse = "cannot use ";
  if (text.starts_with(at))
    return fmt::format("it is not JSON ({})", text.substr(at.size(), text.find(": ") - at.size()));
  if (text.starts_with("parse error")) return "it is not JSON";
  if (text.starts_with(misuse))
    return fmt::format("an object or a list is needed where it has: {}",
                       text.substr(text.rfind(' ') + 1));
  return text;
}

}  // namespace braid
