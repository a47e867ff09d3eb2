// SPDX-License-Identifier: BSD-3-Clause
// Rows of windows between image, shared memory and tensor cores, for window_attention_fast.cu.
#pragma once
#include "cuda/window_attention.h"
#include "cuda/window_tiles.cuh"

namespace braid::cuda {
namespace {

using kernels::WindowPlaces;

constexpr int fast_side = 8, fast_tokens = 64, fast_threads = 128, fast_entries = 225;
constexpr int fast_rows = 16;  // of a warp
constexpr float log2_of_e = 1.4426950408889634f;

// Numbers of a row in shared memory: 16 bytes more than it has, so that eight rows have different
// banks.
template <int head>
constexpr int pitch_of = head + 8;
constexpr int scores_pitch = fast_tokens + 8;

struct FastPlaces {
  int height, width, rows, columns, heads, roll_rows, roll_columns, seam_rows, seam_columns;
  int head;  // numbers of one; that of the kernels is the next multiple of 16
  float scale;

  __device__ int64_t pixel(int window, int token) const {
    const int grid = rows * columns;
    int row = window / columns % rows * fast_side + token / fast_side + roll_rows;
    int column = window % columns * fast_side + token % fast_side + roll_columns;
    if (row >= height) row -= height;
    if (column >= width) column -= width;
    return (static_cast<int64_t>(window / grid) * height + row) * width + column;
  }
};

FastPlaces fast_places(const WindowPlaces& p) {
  return {static_cast<int>(p.height),       static_cast<int>(p.width),
          static_cast<int>(p.rows()),       static_cast<int>(p.columns()),
          static_cast<int>(p.heads),        static_cast<int>(p.roll_rows),
          static_cast<int>(p.roll_columns), static_cast<int>(p.seam_rows),
          static_cast<int>(p.seam_columns), static_cast<int>(p.head),
          static_cast<float>(p.scale)};
}

// Begins to copy the head's rows of a window; from: [pixels, of, heads, p.head]. Heads that fill
// their tiles go 16 bytes at a time, others 4, with zeros behind.
template <int head, class T>
__device__ void copy_rows(T* to, const T* from, const FastPlaces& p, int window, int64_t stride) {
  if (p.head == head) {
    constexpr int chunks = head / 8;
#pragma unroll
    for (int i = threadIdx.x; i < fast_tokens * chunks; i += fast_threads) {
      const int token = i / chunks, chunk = i % chunks;
      copy_16_bytes(to + token * pitch_of<head> + chunk * 8,
                    from + p.pixel(window, token) * stride + chunk * 8);
    }
    return;
  }
  constexpr int pairs = head / 2;
#pragma unroll
  for (int i = threadIdx.x; i < fast_tokens * pairs; i += fast_threads) {
    const int token = i / pairs, pair = i % pairs;
    T* place = to + token * pitch_of<head> + pair * 2;
    if (pair * 2 < p.head)
      copy_4_bytes(place, from + p.pixel(window, token) * stride + pair * 2);
    else
      *reinterpret_cast<uint32_t*>(place) = 0;
  }
}

template <int head, class T>
__device__ void copy_qkv(T* to, const T* qkv, const FastPlaces& p, int window, int which_head) {
  constexpr int size = fast_tokens * pitch_of<head>;
  for (int which = 0; which < 3; ++which)
    copy_rows<head>(to + which * size, qkv + (which * p.heads + which_head) * p.head, p, window,
                    3 * p.heads * p.head);
}

// The warp's 16 rows back to the image.
template <int head, class T>
__device__ void store_rows(T* to, const T* from, const FastPlaces& p, int window, int64_t stride) {
  const int first = threadIdx.x / 32 * fast_rows;
  if (p.head == head) {
    constexpr int chunks = head / 8;
#pragma unroll
    for (int i = threadIdx.x % 32; i < fast_rows * chunks; i += 32) {
      const int token = first + i / chunks, chunk = i % chunks;
      *reinterpret_cast<uint4*>(to + p.pixel(window, token) * stride + chunk * 8) =
          *reinterpret_cast<const uint4*>(from + token * pitch_of<head> + chunk * 8);
    }
    return;
  }
  constexpr int pairs = head / 2;
#pragma unroll
  for (int i = threadIdx.x % 32; i < fast_rows * pairs; i += 32) {
    const int token = first + i / pairs, pair = i % pairs;
    if (pair * 2 < p.head)
      *reinterpret_cast<uint32_t*>(to + p.pixel(window, token) * stride + pair * 2) =
          *reinterpret_cast<const uint32_t*>(from + token * pitch_of<head> + pair * 2);
  }
}

// A warp's [16, head] sums into its rows of shared memory.
template <int head, class T>
__device__ void stage_rows(T* to, const float (&sums)[head / 8][4], float low, float high) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * fast_rows + lane / 4;
#pragma unroll
  for (int n = 0; n < head / 8; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(to + row * pitch_of<head> + column) =
        packed<T>(sums[n][0] * low, sums[n][1] * low);
    *reinterpret_cast<uint32_t*>(to + (row + 8) * pitch_of<head> + column) =
        packed<T>(sums[n][2] * high, sums[n][3] * high);
  }
}

// sums [16, 64] = a's rows of this warp times b^T, both [64, head].
template <int head, class T>
__device__ void rows_by_rows(float (&sums)[8][4], const T* a, const T* b) {
  const int first = threadIdx.x / 32 * fast_rows;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] = 0;
#pragma unroll
  for (int k = 0; k < head; k += 16) {
    const Tile<4> left = load_a(a, pitch_of<head>, first, k);
#pragma unroll
    for (int n = 0; n < 8; n += 2) {
      const Tile<4> right = load_b_turned(b, pitch_of<head>, k, n * 8);
      multiply<T>(sums[n], left, right.x[0], right.x[1]);
      multiply<T>(sums[n + 1], left, right.x[2], right.x[3]);
    }
  }
}

// sums [16, head] += a [16, 16] b's rows k ... k + 15, of [64, head].
template <int head, class T>
__device__ void add_rows(float (&sums)[head / 8][4], const Tile<4>& a, const T* b, int k) {
#pragma unroll
  for (int n = 0; n < head / 8; n += 2) {
    const Tile<4> right = load_b(b, pitch_of<head>, k, n * 8);
    multiply<T>(sums[n], a, right.x[0], right.x[1]);
    multiply<T>(sums[n + 1], a, right.x[2], right.x[3]);
  }
}

template <int count>
__device__ void clear(float (&sums)[count][4]) {
#pragma unroll
  for (int n = 0; n < count; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[n][e] = 0;
}

// 16 columns of scores as the left factor of a product.
template <class T>
__device__ Tile<4> as_left(const float (&scores)[8][4], int k) {
  return {packed<T>(scores[2 * k][0], scores[2 * k][1]),
          packed<T>(scores[2 * k][2], scores[2 * k][3]),
          packed<T>(scores[2 * k + 1][0], scores[2 * k + 1][1]),
          packed<T>(scores[2 * k + 1][2], scores[2 * k + 1][3])};
}

// Of the four lanes that share a row.
__device__ float row_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

__device__ void load_bias(float* bias, const float* table, int heads, int head) {
  for (int i = threadIdx.x; i < fast_entries; i += fast_threads)
    bias[i] = table[i * heads + head] * log2_of_e;
}

}  // namespace
}  // namespace braid::cuda
