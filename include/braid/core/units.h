// SPDX-License-Identifier: BSD-3-Clause
// Quantities with units, as written in configs and printed in reports: 16 GiB, 25 MB, 5m, 1h30m.
//
//   parse_bytes("16 GiB")->count == 17179869184;  parse_seconds("1h30m")->count == 5400;  to_text(Bytes{1536}) == "1.50 KiB"
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braid {

struct Bytes {
  int64_t count = 0;
  bool operator==(const Bytes&) const = default;
};

struct Seconds {
  double count = 0;
  bool operator==(const Seconds&) const = default;
};

std::optional<Bytes> parse_bytes(std::string_view text);      // 12, 12 B, 25 MB (1e6), 16 GiB (2^30)
std::optional<Seconds> parse_seconds(std::string_view text);  // 90, 90s, 5m, 1h30m, 2d
std::string to_text(Bytes bytes);
std::string to_text(Seconds seconds);
std::string with_commas(int64_t number);                   // 23,832,960
std::string with_prefix(double number, std::string_view unit);  // 1.45 TFLOP, 512 k, 3.2 G

}  // namespace braid
