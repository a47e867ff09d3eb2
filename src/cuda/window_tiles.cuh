// SPDX-License-Identifier: BSD-3-Clause
// Tiles of 16-bit numbers in shared memory for tensor cores.
//
//   Tile<4> a = load_a(rows, pitch, 0, 0);                 // [16, 16] of a row-major matrix
//   multiply<at::BFloat16>(sum, a, b0, b1);                // sum [16, 8] += a [16, 16] b [16, 8]
#pragma once
#include "cuda/ptx.cuh"

namespace braid::cuda {

__device__ inline void copy_16_bytes(void* to, const void* from) {
  copy_16_bytes(shared_address(to), from);
}
__device__ inline void copy_4_bytes(void* to, const void* from) {
  copy_4_bytes(shared_address(to), from);
}

// a [16, 16] from row-major [m, k].
template <class T>
__device__ Tile<4> load_a(const T* from, int pitch, int m, int k) {
  const int lane = threadIdx.x % 32;
  return tiles_at(shared_address(from + (m + lane % 16) * pitch + k + lane / 16 * 8));
}
// a [16, 16] from its transpose: row-major [k, m].
template <class T>
__device__ Tile<4> load_a_turned(const T* from, int pitch, int m, int k) {
  const int lane = threadIdx.x % 32;
  return turned_tiles_at(
      shared_address(from + (k + lane % 8 + lane / 16 * 8) * pitch + m + lane / 8 % 2 * 8));
}
// b [16, 16] (two tiles of 8 columns: x[0], x[1] and x[2], x[3]) from its transpose: row-major
// [n, k].
template <class T>
__device__ Tile<4> load_b_turned(const T* from, int pitch, int k, int n) {
  const int lane = threadIdx.x % 32;
  return tiles_at(
      shared_address(from + (n + lane % 8 + lane / 16 * 8) * pitch + k + lane / 8 % 2 * 8));
}
// The same from row-major [k, n].
template <class T>
__device__ Tile<4> load_b(const T* from, int pitch, int k, int n) {
  const int lane = threadIdx.x % 32;
  return turned_tiles_at(shared_address(from + (k + lane % 16) * pitch + n + lane / 16 * 8));
}

}  // namespace braid::cuda
