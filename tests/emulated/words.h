// SPDX-License-Identifier: BSD-3-Clause
// The words of CUDA C++ that src/cuda uses, for a compiler of C++: included before each of its
// files. Shared variables are static: there is one block at a time.
#pragma once
#include <math.h>  // with its functions for float outside of std

#include <algorithm>
#include <cstring>

#include "emulated/block.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};

using std::max;
using std::min;
inline int64_t min(int64_t a, long long b) { return a < b ? a : b; }

inline void __syncthreads() { braid::emulated::wait_for_block(); }
inline void __syncwarp(unsigned = 0xffffffffu) { braid::emulated::wait_for_warp(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int step) {
  static_assert(sizeof(T) <= 8);
  braid::emulated::LaneWords mine = {};
  std::memcpy(mine.data(), &value, sizeof(T));
  const auto& all = braid::emulated::share_in_warp(mine);
  std::memcpy(&value, all[(threadIdx.x % 32) ^ static_cast<unsigned>(step)].data(), sizeof(T));
  return value;
}

// There is one thread at a time.
inline int atomicMax(int* at, int value) {
  const int before = *at;
  *at = std::max(before, value);
  return before;
}

template <class T>
T __ldcs(const T* from) {
  return *from;
}
template <class T>
void __stcs(T* to, const T& value) {
  *to = value;
}

inline float rsqrt(float x) { return 1 / std::sqrt(x); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
