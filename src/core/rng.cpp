// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/rng.h"

#include <cmath>

#include "braid/core/mix.h"
#include "core/philox.h"

namespace braid {
namespace {

uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(hash);
}

double box_muller(const std::array<uint32_t, 4>& words) {
  const double radius = std::sqrt(-2.0 * std::log1p(-philox_unit(words[0], words[1])));
  return radius * std::cos(2.0 * M_PI * philox_unit(words[2], words[3]));
}

}  // namespace

RandomKey RandomKey::with(uint64_t word) const { return {mix(bits ^ mix(word + 1))}; }
RandomKey RandomKey::with(std::string_view word) const { return {mix(bits ^ hash_text(word))}; }

RandomKey random_key(uint64_t seed, std::string_view name) {
  return {mix(mix(seed) ^ hash_text(name))};
}

std::array<uint32_t, 4> random_bits(RandomKey key, uint64_t index) {
  const PhiloxWords words = philox(key.bits, index);
  return {words.at[0], words.at[1], words.at[2], words.at[3]};
}

double random_uniform(RandomKey key, uint64_t index) {
  const auto words = random_bits(key, index);
  return philox_unit(words[0], words[1]);
}

double random_normal(RandomKey key, uint64_t index) { return box_muller(random_bits(key, index)); }

int64_t random_below(RandomKey key, uint64_t index, int64_t end) {
  return static_cast<int64_t>(random_uniform(key, index) * static_cast<double>(end));
}

}  // namespace braid
