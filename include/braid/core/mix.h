// SPDX-License-Identifier: BSD-3-Clause
// SplitMix64 as a function of a counter: the numbers behind keys and dropout masks, the same in
// host code and in CUDA kernels.
//
//   uint64_t word = mix_at(key, index);  // well mixed, one for each (key, index)
//   bool kept = mix_keeps(key, index, mix_threshold(0.1));  // false for a tenth of the indices
#pragma once
#include <cmath>
#include <cstdint>

#include "braid/core/anywhere.h"

namespace braid {

constexpr uint64_t mix_golden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: the counter's stride
constexpr uint64_t mix_first = 0xbf58476d1ce4e5b9, mix_second = 0x94d049bb133111eb;

// Every bit of x reaches every bit of the result.
BRAID_ANYWHERE constexpr uint64_t mix(uint64_t x) {
  x += mix_golden;
  x = (x ^ (x >> 30)) * mix_first;
  x = (x ^ (x >> 27)) * mix_second;
  return x ^ (x >> 31);
}

// Word `index` of the generator that starts at `key`.
BRAID_ANYWHERE constexpr uint64_t mix_at(uint64_t key, uint64_t index) {
  return mix(key + index * mix_golden);
}

// A share of the indices by comparing the top 31 bits: as many as tensor operations on int64 hold
// without their sign.
constexpr int mix_word_bits = 31;

inline uint64_t mix_threshold(double rate) {
  return static_cast<uint64_t>(std::llround(std::ldexp(rate, mix_word_bits)));
}

BRAID_ANYWHERE constexpr bool mix_keeps(uint64_t key, uint64_t index, uint64_t threshold) {
  return mix_at(key, index) >> (64 - mix_word_bits) >= threshold;
}

}  // namespace braid
