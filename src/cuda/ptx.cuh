// SPDX-License-Identifier: BSD-3-Clause
// What a GPU can do and C++ cannot say: fast approximations, barriers of some of a block's threads,
// copies past the registers, tensor cores (mma.sync m16n8k16, sm_80 and later). Addresses of 32
// bits are those of shared memory.
//
// tests/emulated has a header of this name with the same functions in plain C++.
#pragma once
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>
#include <type_traits>

namespace braid::cuda {

// One instruction each; what they cannot tell apart is smaller than fp32 rounds.
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float one_over(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline float root_of(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline uint8_t fp8_code(float x, bool e5m2) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, e5m2 ? __NV_E5M2 : __NV_E4M3);
}

// Into the L2 cache; takes no registers.
__device__ inline void ask_for(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// Waits until `threads` threads, whole warps, are at this barrier (1 to 15).
__device__ inline void wait_at(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ inline uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}
__device__ inline void store_shared(uint32_t address, uint32_t value) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
__device__ inline uint4 load_shared(uint32_t address) {
  uint4 value;
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(address)
               : "memory");
  return value;
}
__device__ inline void store_global(void* to, const uint4& value) {
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}

// Copies from global to shared memory are done when the groups that hold them were waited for.
__device__ inline void copy_16_bytes(uint32_t address, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from) : "memory");
}
__device__ inline void copy_4_bytes(uint32_t address, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(address), "l"(from));
}
__device__ inline void close_copies() { asm volatile("cp.async.commit_group;"); }
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending));
}

template <int count>
struct Tile {
  uint32_t x[count];  // two 16-bit numbers each
};

// Four matrices [8, 8]; lane l gives the address of row l % 8 of matrix l / 8.
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
// A matrix [8, 8] in the registers of a warp.
__device__ inline uint32_t turned_matrix(uint32_t x) {
  uint32_t y;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// sum [16, 8] += a [16, 16] b [16, 8].
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

// Two numbers of T in 32 bits, the low one first.
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
// The number at `place` of the two.
template <class T, int place>
__device__ float unpacked(uint32_t pair) {
  if constexpr (std::is_same_v<T, c10::BFloat16>)
    return __uint_as_float(place == 0 ? pair << 16 : pair & 0xffff0000u);
  const __half_raw bits = {static_cast<unsigned short>(place == 0 ? pair : pair >> 16)};
  return __half2float(__half(bits));
}

}  // namespace braid::cuda
