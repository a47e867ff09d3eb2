// SPDX-License-Identifier: BSD-3-Clause
// Tiles of 16-bit numbers for tensor cores (mma.sync m16n8k16, sm_80 and later): loads from shared
// memory, products, packing.
//
//   Tile<4> a = load_a(rows, pitch, 0, 0);                 // [16, 16] of a row-major matrix
//   multiply<at::BFloat16>(sum, a, b0, b1);                // sum [16, 8] += a [16, 16] b [16, 8]
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

namespace braid::cuda {

template <int count>
struct Tile {
  uint32_t x[count];
};

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Addresses are of shared memory; so is `to`.
__device__ inline void copy_16_bytes(uint32_t address, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ inline void copy_16_bytes(void* to, const void* from) {
  copy_16_bytes(shared_address(to), from);
}
__device__ inline void copy_4_bytes(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from));
}
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;"); }
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending));
}

__device__ inline Tile<4> tiles_at(uint32_t address) {
  Tile<4> t;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(t.x[0]), "=r"(t.x[1]), "=r"(t.x[2]), "=r"(t.x[3])
               : "r"(address)
               : "memory");
  return t;
}
__device__ inline Tile<4> turned_tiles_at(uint32_t address) {
  Tile<4> t;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(t.x[0]), "=r"(t.x[1]), "=r"(t.x[2]), "=r"(t.x[3])
               : "r"(address)
               : "memory");
  return t;
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

template <class T>
__device__ void multiply(float (&sum)[4], const Tile<4>& a, uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b0), "r"(b1));
}

template <class T>
__device__ uint32_t packed(float low, float high) {
  uint32_t bits;
  if constexpr (std::is_same_v<T, c10::BFloat16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    memcpy(&bits, &pair, 4);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    memcpy(&bits, &pair, 4);
  }
  return bits;
}

}  // namespace braid::cuda
