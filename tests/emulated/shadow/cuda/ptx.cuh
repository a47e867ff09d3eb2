// SPDX-License-Identifier: BSD-3-Clause
// src/cuda/ptx.cuh in plain C++. A warp's lanes hold a matrix of 16-bit numbers as PTX lays it out:
// lane l has of row l / 4 the columns 2 (l % 4) and the next.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Float8_e4m3fn.h>
#include <c10/util/Float8_e5m2.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulated/block.h"

namespace braid::cuda {

inline float power_of_two(float x) { return std::exp2(x); }
inline float one_over(float x) { return 1 / x; }
inline float root_of(float x) { return std::sqrt(x); }

// To the nearest, and to the largest at most.
inline uint8_t fp8_code(float x, bool e5m2) {
  const float most = e5m2 ? 57344.0f : 448.0f;
  const float held = std::isnan(x) ? x : std::clamp(x, -most, most);
  return e5m2 ? c10::Float8_e5m2(held).x : c10::Float8_e4m3fn(held).x;
}

inline void ask_for(const void*) {}
inline void wait_at(int barrier, int threads) { emulated::wait_for_some(barrier, threads); }

// Shared variables lie in the program, less than 2 GiB from the block's bytes.
inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(pointer) -
                               emulated::shared_bytes());
}
inline unsigned char* at_shared(uint32_t address) {
  return emulated::shared_bytes() + static_cast<int32_t>(address);
}
inline void store_shared(uint32_t address, uint32_t value) {
  *reinterpret_cast<uint32_t*>(at_shared(address)) = value;
}
inline uint4 load_shared(uint32_t address) { return *reinterpret_cast<uint4*>(at_shared(address)); }
inline void store_global(void* to, const uint4& value) { *static_cast<uint4*>(to) = value; }

template <int bytes>
void copy_bytes(uint32_t address, const void* from) {
  emulated::require(address % bytes == 0 && reinterpret_cast<uintptr_t>(from) % bytes == 0,
                    "a copy that is not aligned");
  emulated::copy_later(at_shared(address), from, bytes);
}
inline void copy_16_bytes(uint32_t address, const void* from) { copy_bytes<16>(address, from); }
inline void copy_4_bytes(uint32_t address, const void* from) { copy_bytes<4>(address, from); }
inline void close_copies() { emulated::close_group(); }
template <int pending>
void wait_copies() {
  emulated::wait_for_groups(pending);
}

template <int count>
struct Tile {
  uint32_t x[count];
};

inline unsigned warp_lane() { return threadIdx.x % 32; }
inline uint32_t pair_of(uint32_t low, uint32_t high) { return (low & 0xffffu) | high << 16; }

inline const auto& rows_of_tiles(uint32_t address) {
  emulated::require(address % 16 == 0, "a row of a tile that is not aligned");
  return emulated::share_in_warp({address});
}
inline Tile<4> tiles_at(uint32_t address) {
  const auto& rows = rows_of_tiles(address);
  const unsigned lane = warp_lane();
  Tile<4> tile;
  for (unsigned m = 0; m < 4; ++m)
    std::memcpy(&tile.x[m], at_shared(rows[m * 8 + lane / 4][0] + lane % 4 * 4), 4);
  emulated::wait_for_warp();
  return tile;
}
inline Tile<4> turned_tiles_at(uint32_t address) {
  const auto& rows = rows_of_tiles(address);
  const unsigned lane = warp_lane();
  Tile<4> tile;
  for (unsigned m = 0; m < 4; ++m) {
    uint16_t at[2];
    for (unsigned i = 0; i < 2; ++i)
      std::memcpy(&at[i], at_shared(rows[m * 8 + lane % 4 * 2 + i][0] + lane / 4 * 2), 2);
    tile.x[m] = pair_of(at[0], at[1]);
  }
  emulated::wait_for_warp();
  return tile;
}
inline uint32_t turned_matrix(uint32_t x) {
  const auto& all = emulated::share_in_warp({x});
  const unsigned lane = warp_lane(), row = lane / 4;
  const auto at = [&](unsigned column) { return all[column * 4 + row / 2][0] >> (row % 2 * 16); };
  return pair_of(at(lane % 4 * 2), at(lane % 4 * 2 + 1));
}

template <class T, int place>
float unpacked(uint32_t pair) {
  return static_cast<float>(
      T(static_cast<uint16_t>(place == 0 ? pair : pair >> 16), T::from_bits()));
}
template <class T>
uint32_t packed(float low, float high) {
  return pair_of(T(low).x, T(high).x);
}

template <class T>
void multiply(float (&sum)[4], const Tile<4>& a, uint32_t b0, uint32_t b1) {
  const auto& all = emulated::share_in_warp({a.x[0], a.x[1], a.x[2], a.x[3], b0, b1});
  const unsigned lane = warp_lane();
  for (unsigned e = 0; e < 4; ++e) {
    const unsigned low = e / 2, column = lane % 4 * 2 + e % 2;  // low: row 8 further
    for (unsigned k = 0; k < 16; ++k) {
      const unsigned from = k % 8 / 2, half = k / 8;
      const uint32_t left = all[lane / 4 * 4 + from][low + 2 * half],
                     right = all[column * 4 + from][4 + half];
      sum[e] += k % 2 == 0 ? unpacked<T, 0>(left) * unpacked<T, 0>(right)
                           : unpacked<T, 1>(left) * unpacked<T, 1>(right);
    }
  }
}

}  // namespace braid::cuda
