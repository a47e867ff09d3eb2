// SPDX-License-Identifier: BSD-3-Clause
// Philox4x32-10 as a function of key and counter, the same in host code and in CUDA kernels.
//
//   const PhiloxWords words = philox(key.bits, index);
//   double share = philox_unit(words.at[0], words.at[1]);   // 53 random bits in [0, 1)
#pragma once
#include <cstdint>

#include "braid/core/anywhere.h"

namespace braid {

struct PhiloxWords {
  uint32_t at[4];
};

BRAID_ANYWHERE inline PhiloxWords philox(uint64_t key, uint64_t index) {
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  PhiloxWords x = {{static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0}};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * x.at[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * x.at[2];
    x = {{static_cast<uint32_t>(product1 >> 32) ^ x.at[1] ^ key0, static_cast<uint32_t>(product1),
          static_cast<uint32_t>(product0 >> 32) ^ x.at[3] ^ key1, static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return x;
}

BRAID_ANYWHERE inline double philox_unit(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32 | low) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace braid
