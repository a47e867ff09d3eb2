// SPDX-License-Identifier: BSD-3-Clause
// JSON from files that anybody may have written.
//
//   const nlohmann::json content = parse_json(read_regular(file));  // throws JsonFault
//   const int64_t step = integer_of(content.at("step"), "step");
//
// The JSON library writes and compares nested values recursively: a text of 100,000 brackets would
// overflow the stack. So every text is checked for its depth before it is parsed.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace braid {

inline constexpr int most_nested_json = 64;

// The text is not what its reader expects; what() says why in plain words.
struct JsonFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// `unique` refuses a key that occurs twice in one object; otherwise the last one wins.
enum class JsonKeys { any, unique };
nlohmann::json parse_json(std::string_view text, JsonKeys keys = JsonKeys::any);

// A whole number that fits into 64 bits. `name` is for the message.
int64_t integer_of(const nlohmann::json& value, std::string_view name);

// What an exception of the JSON library says, without the library's own names and numbers.
std::string json_fault(const std::exception& error);

}  // namespace braid
