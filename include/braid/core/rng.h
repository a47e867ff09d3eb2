// SPDX-License-Identifier: BSD-3-Clause
// Counter-based random numbers: a value depends on (key, index) alone, never on how many were drawn
// before or by which rank. So a parameter has the same initial values on any mesh, and a crop is
// the same on any loader thread.
//
//   RandomKey key = random_key(seed, "blocks.0.attn.q.weight");
//   fill_normal(weight, key, {.std = 0.02, .low = -2, .high = 2});   // element i = f(key, i)
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace braid {

struct RandomKey {
  uint64_t bits = 0;
  RandomKey with(
      uint64_t word) const;  // a key of its own for each word: random_key(seed, "crop").with(epoch)
  RandomKey with(std::string_view word) const;
  bool operator==(const RandomKey&) const = default;
};

RandomKey random_key(uint64_t seed, std::string_view name);

// Four 32-bit words of Philox4x32-10 for counter `index`.
std::array<uint32_t, 4> random_bits(RandomKey key, uint64_t index);
double random_uniform(RandomKey key, uint64_t index);              // [0, 1)
double random_normal(RandomKey key, uint64_t index);               // mean 0, std 1
int64_t random_below(RandomKey key, uint64_t index, int64_t end);  // 0 .. end-1

struct NormalOptions {
  double mean = 0;
  double std = 1;
  double low = -1e300;  // values outside are drawn again (from the same index)
  double high = 1e300;
};

// Fill a floating tensor of any dtype and device (in parallel; values do not depend on the thread
// count). Element i of a shard is element first + i of the whole. A tensor without data (meta, dry)
// is left alone. Normal values are made in fp64 and then rounded. A GPU draws the same integers,
// and its logarithm and cosine may differ from the host's in the last bit of fp64, which one of
// about 10^8 values in fp32 shows; uniform values are the same.
void fill_normal(const at::Tensor& tensor, RandomKey key, NormalOptions options = {},
                 int64_t first = 0);
void fill_uniform(const at::Tensor& tensor, RandomKey key, double low, double high,
                  int64_t first = 0);

}  // namespace braid
