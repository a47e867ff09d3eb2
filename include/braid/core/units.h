// SPDX-License-Identifier: BSD-3-Clause
// Quantities with units, as written in configs and printed in reports: 16 GiB, 25 MB, 5m, 1h30m.
//
//   int64_t bytes = parse_bytes("16 GiB")->count;      // 17179869184
//   double seconds = parse_seconds("1h30m")->count;    // 5400
//   std::string text = to_text(Bytes{1536});           // "1.50 KiB"
//
// The parsers take the whole text or nothing: what they do not understand is nullopt, never a
// guess.
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

std::optional<int64_t> parse_integer(
    std::string_view text);                                 // 30000, 30_000, 3e4; exact, so not 2.5
std::optional<double> parse_number(std::string_view text);  // 5e-4, 1_000.5; finite
std::optional<Bytes> parse_bytes(std::string_view text);    // 12, 12 B, 25 MB (1e6), 16 GiB (2^30)
std::optional<Seconds> parse_seconds(std::string_view text);  // 90, 90s, 5m, 1h30m, 2d, 500ms

std::string to_text(Bytes bytes);      // 12 B, 1.50 KiB
std::string to_text(Seconds seconds);  // 12.3 ms, 4.5 s, 1m30s, 1h30m, 2d3h: two units, rounded
// As a config has them: the value comes back exactly.
std::string exact_text(Bytes bytes);      // 16 GiB, 1537
std::string exact_text(Seconds seconds);  // 1h30m, 250 ms
std::string exact_text(double number);    // the shortest digits that read back as the same number

std::string with_commas(int64_t number);                        // 23,832,960
std::string with_prefix(double number, std::string_view unit);  // 1.45 TFLOP, 512 k, 3.2 G

}  // namespace braid
