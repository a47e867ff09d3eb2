// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/rng.h"
#include "braid/core/in_parts.h"

#include <ATen/ops/empty.h>

#include <cmath>

#include "braid/core/dry.h"
#include "braid/core/mix.h"

namespace braid {
namespace {

uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return mix(hash);
}

// 53 random bits in [0, 1).
double unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

double box_muller(const std::array<uint32_t, 4>& words) {
  const double radius = std::sqrt(-2.0 * std::log1p(-unit(words[0], words[1])));
  return radius * std::cos(2.0 * M_PI * unit(words[2], words[3]));
}

// Draws of one index that are refused are repeated under a key of their own, so no other index is
// touched.
double bounded_normal(RandomKey key, uint64_t index, const NormalOptions& options) {
  for (uint64_t attempt = 0;; ++attempt) {
    const RandomKey drawn = attempt == 0 ? key : key.with(attempt);
    const double value = options.mean + options.std * random_normal(drawn, index);
    if (value >= options.low && value <= options.high) return value;
  }
}

template <class Draw>
void fill_with(const at::Tensor& tensor, int64_t first, const Draw& draw) {
  if (tensor.numel() == 0 || !has_data(tensor)) return;
  const auto drawn = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor host = at::empty(tensor.sizes(), at::TensorOptions().dtype(drawn));
  in_parts(host.numel(), 4096, [&](int64_t begin, int64_t end) {
    if (drawn == at::kDouble) {
      double* out = host.data_ptr<double>();
      for (int64_t i = begin; i < end; ++i) out[i] = draw(static_cast<uint64_t>(first + i));
    } else {
      float* out = host.data_ptr<float>();
      for (int64_t i = begin; i < end; ++i)
        out[i] = static_cast<float>(draw(static_cast<uint64_t>(first + i)));
    }
  });
  tensor.detach().copy_(host);
}

}  // namespace

RandomKey RandomKey::with(uint64_t word) const { return {mix(bits ^ mix(word + 1))}; }
RandomKey RandomKey::with(std::string_view word) const { return {mix(bits ^ hash_text(word))}; }

RandomKey random_key(uint64_t seed, std::string_view name) {
  return {mix(mix(seed) ^ hash_text(name))};
}

std::array<uint32_t, 4> random_bits(RandomKey key, uint64_t index) {
  uint32_t key0 = static_cast<uint32_t>(key.bits), key1 = static_cast<uint32_t>(key.bits >> 32);
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0,
                               0};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * x[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return x;
}

double random_uniform(RandomKey key, uint64_t index) {
  const auto words = random_bits(key, index);
  return unit(words[0], words[1]);
}

double random_normal(RandomKey key, uint64_t index) { return box_muller(random_bits(key, index)); }

int64_t random_below(RandomKey key, uint64_t index, int64_t end) {
  return static_cast<int64_t>(random_uniform(key, index) * static_cast<double>(end));
}

void fill_normal(const at::Tensor& tensor, RandomKey key, NormalOptions options, int64_t first) {
  fill_with(tensor, first, [&](uint64_t index) { return bounded_normal(key, index, options); });
}

void fill_uniform(const at::Tensor& tensor, RandomKey key, double low, double high, int64_t first) {
  fill_with(tensor, first,
            [&](uint64_t index) { return low + (high - low) * random_uniform(key, index); });
}

}  // namespace braid
