// SPDX-License-Identifier: BSD-3-Clause
// What a warp does that has a head of 32 numbers of a window of 8 x 8, for
// window_attention_warp.cu: rows of 64 bytes in shared memory, copies from and to the image, scores
// and softmax of 16 queries.
//
// Rows lie one after the other, four pieces of 16 bytes each; which piece is where depends on the
// row, so that eight rows have different banks. A tile is 16 rows: two rows of the image.
#pragma once
#include "cuda/window_rows.cuh"

namespace braid::cuda {
namespace {

constexpr int warp_head = 32, warp_warps = fast_threads / 32;
constexpr uint32_t half_tile = 8 * 64, tile_bytes = 2 * half_tile, rows_bytes = 4 * tile_bytes;
constexpr int apart = 15;  // so many rows can queries and keys be apart, from -7 to 7

// Offsets of a lane; another piece p: offset ^ 16 p.
struct LaneAt {
  uint32_t left;   // for factors from the left, and for those from the right by rows
  uint32_t right;  // for factors from the right by columns
  uint32_t own;    // its 16 of 8 x 64 bytes
  uint32_t sums;   // its two numbers of a [16, 8] product, the lower ones half a tile further
};
__device__ LaneAt lane_at() {
  const uint32_t lane = threadIdx.x % 32, turn = lane % 8 / 2, row = lane / 4;
  return {lane % 16 * 64 + ((lane / 16 ^ turn) << 4),
          (lane % 8 + lane / 16 * 8) * 64 + ((lane / 8 % 2 ^ turn) << 4),
          row * 64 + ((lane % 4 ^ row / 2) << 4), row * 64 + (row / 2 << 4) + lane % 4 * 4};
}

// Of [16, 32] rows: the left factor's 16 columns from 16 k on.
__device__ Tile<4> left_tile(uint32_t rows, const LaneAt& at, int k) {
  return tiles_at(rows + (at.left ^ k << 5));
}
// The right factor whose columns are these rows, its rows from 16 k on.
__device__ Tile<4> right_by_columns(uint32_t rows, const LaneAt& at, int k) {
  return tiles_at(rows + (at.right ^ k << 5));
}
// The right factor whose rows these are, its columns from 16 n on.
__device__ Tile<4> right_by_rows(uint32_t rows, const LaneAt& at, int n) {
  return turned_tiles_at(rows + (at.left ^ n << 5));
}

// A tile of 16 x 16 as the left factor turned.
__device__ Tile<4> turned(const Tile<4>& a) {
  return {turned_matrix(a.x[0]), turned_matrix(a.x[2]), turned_matrix(a.x[1]),
          turned_matrix(a.x[3])};
}

template <class T>
__device__ void multiply_pair(float (&low)[4], float (&high)[4], const Tile<4>& a,
                              const Tile<4>& b) {
  multiply<T>(low, a, b.x[0], b.x[1]);
  multiply<T>(high, a, b.x[2], b.x[3]);
}

// Where a window lies, as a lane sees it: it copies the pixels of one column.
struct Spot {
  int image, row, column;
  int cut_row, cut_column;  // tokens from here on are of the other side of the image
  __device__ bool cut() const { return cut_row < fast_side || cut_column < fast_side; }
  __device__ int64_t pixel(const FastPlaces& p, int r) const {
    int at = row + r;
    if (at >= p.height) at -= p.height;
    return static_cast<int64_t>(image + at) * p.width + column;
  }
};
__device__ Spot spot_of(const FastPlaces& p, int window) {
  const int across = window % p.columns, above = window / p.columns, down = above % p.rows;
  int column = across * fast_side + static_cast<int>(threadIdx.x % 32 / 4) + p.roll_columns;
  if (column >= p.width) column -= p.width;
  return {above / p.rows * p.height, down * fast_side + p.roll_rows, column,
          down + 1 == p.rows ? fast_side - p.seam_rows : fast_side,
          across + 1 == p.columns ? fast_side - p.seam_columns : fast_side};
}

// from, to: the head's first number of pixel 0; stride: numbers from pixel to pixel.
template <class T>
struct HeadImage {
  T* data;
  int stride;
  __device__ T* at(const FastPlaces& p, const Spot& spot, int r) const {
    return data + spot.pixel(p, r) * stride + threadIdx.x % 4 * 8;
  }
};

template <class T>
__device__ void copy_tile(uint32_t to, const HeadImage<const T>& from, const FastPlaces& p,
                          const Spot& spot, int tile) {
#pragma unroll
  for (int i = 0; i < 2; ++i) copy_16_bytes(to + i * half_tile, from.at(p, spot, 2 * tile + i));
}

// The [16, 32] sums, times a factor, by way of a tile that nobody reads any more.
template <class T>
__device__ void store_tile(const float (&sums)[4][4], float factor, uint32_t tile, const LaneAt& at,
                           const HeadImage<T>& to, const FastPlaces& p, const Spot& spot, int row) {
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      store_shared(tile + i * half_tile + (at.sums ^ n << 4),
                   packed<T>(sums[n][2 * i] * factor, sums[n][2 * i + 1] * factor));
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 2; ++i)
    store_global(to.at(p, spot, row + i), load_shared(tile + i * half_tile + at.own));
  __syncwarp();
}

// bias [15][lane][2]: what the lane adds to a score of rows so far apart, before the scale.
__device__ void spread_bias(float* bias, const float* table, const FastPlaces& p, int head) {
  for (int i = threadIdx.x; i < apart * 64; i += fast_threads) {
    const int lane = i / 2 % 32, query = lane / 4, key = lane % 4 * 2 + i % 2;
    bias[i] = table[(i / 64 * apart + query - key + 7) * p.heads + head] / p.scale;
  }
}

// scores [16, 64] of queries in rows 2 tile and 2 tile + 1 begin with the bias.
__device__ void begin_scores(float (&scores)[8][4], const float* bias, int tile) {
  const float2* of = reinterpret_cast<const float2*>(bias) + tile * 64 + threadIdx.x % 32;
#pragma unroll
  for (int d = 0; d < 9; ++d) {  // row of query - row of key + 7, from 2 tile on
    const float2 pair = of[d * 32];
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (const int n = 7 + i - d; n >= 0 && n < 8) {
        scores[n][2 * i] = pair.x;
        scores[n][2 * i + 1] = pair.y;
      }
  }
}

__device__ void hide_scores(float (&scores)[8][4], const Spot& spot, int tile, float scale) {
  const int lane = threadIdx.x % 32;
  const float hidden = static_cast<float>(kernels::hidden_score) / scale;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if ((2 * tile + e / 2 >= spot.cut_row) != (n >= spot.cut_row) ||
          (lane / 4 >= spot.cut_column) != (lane % 4 * 2 + e % 2 >= spot.cut_column))
        scores[n][e] += hidden;
}

// Softmax of scale times the scores; four left factors of 16 keys each.
template <class T>
__device__ void weigh_scores(Tile<4> (&weights)[4], float (&scores)[8][4], float scale) {
  const float factor = scale * log2_of_e;
  float top[2] = {-INFINITY, -INFINITY}, sums[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) top[e / 2] = fmaxf(top[e / 2], scores[n][e]);
  const float low[2] = {-factor * row_max(top[0]), -factor * row_max(top[1])};
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[n][e] = power_of_two(fmaf(scores[n][e], factor, low[e / 2]));
      sums[e / 2] += scores[n][e];
    }
  // A sum is 1 or more: one of its terms is.
  const float share[2] = {__fdividef(1.0f, row_sum(sums[0])), __fdividef(1.0f, row_sum(sums[1]))};
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[n][e] *= share[e / 2];
#pragma unroll
  for (int k = 0; k < 4; ++k) weights[k] = as_left<T>(scores, k);
}

}  // namespace
}  // namespace braid::cuda
