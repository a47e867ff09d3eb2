// SPDX-License-Identifier: BSD-3-Clause
// Where a field stops being finite. Internal.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>

namespace braid::data {

inline bool not_finite_bits(float value) {
  constexpr uint32_t exponent = 0x7f800000;
  return (std::bit_cast<uint32_t>(value) & exponent) == exponent;
}

// Index of the first NaN or infinity, or -1. Integer tests without an early exit inside a block, so
// that compilers vectorise.
inline int64_t first_not_finite(const float* values, int64_t count) {
  constexpr int64_t block = 4096;
  for (int64_t first = 0; first < count; first += block) {
    const int64_t end = first + block < count ? first + block : count;
    uint32_t bad = 0;
    for (int64_t i = first; i < end; ++i) bad |= static_cast<uint32_t>(not_finite_bits(values[i]));
    if (bad == 0) continue;
    for (int64_t i = first; i < end; ++i)
      if (not_finite_bits(values[i])) return i;
  }
  return -1;
}

inline const char* not_finite_name(float value) { return std::isnan(value) ? "NaN" : "infinity"; }

}  // namespace braid::data
