// SPDX-License-Identifier: BSD-3-Clause
// Damages JSON as a fuzzer does: bytes, and values replaced by hostile ones. The same seed gives
// the same damage. BRAID_FUZZ=10000 sets how many inputs a test tries.
//
//   Mutator mutator(seed);
//   read(mutator.damaged_text(good));            // bytes
//   read(mutator.damaged_json(parsed).dump());   // one value
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace braid::test {

inline int fuzz_count(int otherwise) {
  const char* asked = std::getenv("BRAID_FUZZ");
  return asked == nullptr ? otherwise : std::atoi(asked);
}

// Ends the program by SIGALRM if a test hangs.
class HangGuard {
 public:
  explicit HangGuard(unsigned seconds) { ::alarm(seconds); }
  ~HangGuard() { ::alarm(0); }
  HangGuard(const HangGuard&) = delete;
  HangGuard& operator=(const HangGuard&) = delete;
};

class Mutator {
 public:
  using json = nlohmann::json;
  explicit Mutator(uint64_t seed) : random_(seed) {}

  size_t below(size_t count) { return count == 0 ? 0 : random_() % count; }

  std::string damaged_text(std::string text) {
    static const std::vector<std::string> odd = {"[",
                                                 "{",
                                                 "]",
                                                 "}",
                                                 "\"",
                                                 "\\",
                                                 ":",
                                                 ",",
                                                 "null",
                                                 "-1",
                                                 "1e999",
                                                 "18446744073709551616",
                                                 std::string(1, '\0'),
                                                 "\xff\xfe",
                                                 std::string(500, '['),
                                                 "\\u0000",
                                                 "NaN"};
    for (size_t i = 0, count = 1 + below(4); i < count && !text.empty(); ++i) {
      const size_t at = below(text.size());
      switch (below(5)) {
        case 0:
          text[at] = static_cast<char>(random_());
          break;
        case 1:
          text.erase(at, 1 + below(20));
          break;
        case 2:
          text.insert(at, odd[below(odd.size())]);
          break;
        case 3:
          text.insert(at, text.substr(below(text.size()), 1 + below(60)));
          break;
        default:
          text.resize(at);
      }
    }
    return text;
  }

  // One to three values, anywhere, become others.
  json damaged_json(json content) {
    for (size_t i = 0, count = 1 + below(3); i < count; ++i) {
      std::vector<json*> values;
      collect(content, values);
      json& chosen = *values[below(values.size())];
      if (chosen.is_array() && !chosen.empty() && below(3) == 0) {
        if (below(2) == 0)
          chosen.erase(below(chosen.size()));
        else
          chosen.push_back(json(chosen[below(chosen.size())]));
      } else {
        chosen = hostile();
      }
    }
    return content;
  }

 private:
  static void collect(json& value, std::vector<json*>& values) {
    values.push_back(&value);
    if (!value.is_structured()) return;
    for (json& inner : value) collect(inner, values);
  }

  json hostile() {
    constexpr auto most = std::numeric_limits<int64_t>::max();
    json deep = 1;
    for (int level = 0; level < 70; ++level) deep = json::array({deep});
    const std::vector<json> values = {nullptr,
                                      true,
                                      false,
                                      0,
                                      1,
                                      -1,
                                      most,
                                      -most - 1,
                                      uint64_t{1} << 63,
                                      int64_t{1} << 61,
                                      int64_t{1} << 32,
                                      1e300,
                                      -0.5,
                                      5e-324,
                                      "",
                                      "x",
                                      "../../etc/passwd",
                                      "/etc/passwd",
                                      std::string("a\0b", 3),
                                      "\x1b[31m",
                                      "F32",
                                      "X99",
                                      std::string(300, 'n'),
                                      json::array(),
                                      json::object(),
                                      json::array({1, 2}),
                                      json::array({-1, 64}),
                                      json::array({int64_t{1} << 40, int64_t{1} << 40}),
                                      json::object({{"a", 1}}),
                                      deep};
    return values[below(values.size())];
  }

  std::mt19937_64 random_;
};

}  // namespace braid::test
