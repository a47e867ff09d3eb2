// SPDX-License-Identifier: BSD-3-Clause
// Window attention on tensor cores for heads of 32 and windows of 8 x 8, in 16 bits: a warp has one
// head of one window and goes from window to window, without waiting for other warps. While it
// works on one the next is copied, so that the kernels run as fast as memory gives and takes.

#include <algorithm>

#include "cuda/launch.cuh"
#include "cuda/window_warp.cuh"

namespace braid::cuda {
namespace {

constexpr uint32_t bias_bytes = apart * 64 * sizeof(float);
constexpr uint32_t forward_rows = 3 * rows_bytes;  // of a warp: q, k, v
constexpr uint32_t grad_rows = 6 * rows_bytes;     // q, gradient, two of {k, v}

template <class T>
struct WarpPointers {
  const T *qkv, *grad;
  const float* table;
  T *out, *value;  // value: of the backward pass, null if it is not wanted
  float* partial;
};

// q, k, v (or their gradients) of a head.
template <class T>
__device__ HeadImage<T> part_of_qkv(T* qkv, const FastPlaces& p, int which, int head) {
  return {qkv + (which * p.heads + head) * warp_head, 3 * p.heads * warp_head};
}

template <class T>
__device__ void copy_keys_and_values(uint32_t to, const T* qkv, const FastPlaces& p,
                                     const Spot& spot, int head) {
#pragma unroll
  for (int which = 1; which < 3; ++which)
#pragma unroll
    for (int tile = 0; tile < 4; ++tile)
      copy_tile(to + (which - 1) * rows_bytes + tile * tile_bytes, part_of_qkv(qkv, p, which, head),
                p, spot, tile);
}

// Keys as columns and values as rows of right factors: [of 16 tokens][of 16 numbers].
struct HeldKeys {
  Tile<4> k[4][2], v[4][2];
};

// 16 queries, whose rows make room for the result.
template <class T>
__device__ void attend_tile(const HeldKeys& held, uint32_t q, const LaneAt& at, const float* bias,
                            const FastPlaces& p, const Spot& spot, int tile,
                            const HeadImage<T>& out) {
  float scores[8][4], sums[4][4];
  begin_scores(scores, bias, tile);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const Tile<4> left = left_tile(q, at, k);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      multiply_pair<T>(scores[2 * n], scores[2 * n + 1], left, held.k[n][k]);
  }
  if (spot.cut()) hide_scores(scores, spot, tile, p.scale);
  Tile<4> weights[4];
  weigh_scores<T>(weights, scores, p.scale);
  clear(sums);
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int n = 0; n < 2; ++n)
      multiply_pair<T>(sums[2 * n], sums[2 * n + 1], weights[k], held.v[k][n]);
  __syncwarp();
  store_tile(sums, 1.0f, q, at, out, p, spot, 2 * tile);
}

// Groups of copies, in their order: k and v of a window, its four tiles of q, and so on. At each
// wait four younger ones are on their way.
template <class T>
__global__ void __launch_bounds__(fast_threads, 3)
    window_warp_kernel(FastPlaces p, WarpPointers<T> x, int windows, int parts) {
  auto* bias = shared_memory<float>();
  const int warp = threadIdx.x / 32, head = blockIdx.x % p.heads, step = parts * warp_warps;
  const LaneAt at = lane_at();
  const uint32_t q = shared_address(bias) + bias_bytes + warp * forward_rows, k = q + rows_bytes,
                 v = k + rows_bytes;
  const HeadImage<const T> queries = part_of_qkv(x.qkv, p, 0, head);
  const HeadImage<T> out = {x.out + head * warp_head, p.heads * warp_head};
  int window = blockIdx.x / p.heads * warp_warps + warp;
  Spot spot = spot_of(p, window < windows ? window : 0);
  if (window < windows) copy_keys_and_values(k + at.own, x.qkv, p, spot, head);
  close_copies();
  for (int tile = 0; tile < 4; ++tile) {
    if (window < windows) copy_tile(q + tile * tile_bytes + at.own, queries, p, spot, tile);
    close_copies();
  }
  spread_bias(bias, x.table, p, head);
  __syncthreads();
  for (; window < windows; window += step) {
    const bool more = window + step < windows;
    const Spot next = more ? spot_of(p, window + step) : spot;
    wait_copies<4>();
    __syncwarp();
    HeldKeys held;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        held.k[i][j] = right_by_columns(k + i * tile_bytes, at, j);
        held.v[i][j] = right_by_rows(v + i * tile_bytes, at, j);
      }
    __syncwarp();
    if (more) copy_keys_and_values(k + at.own, x.qkv, p, next, head);
    close_copies();
#pragma unroll 1
    for (int tile = 0; tile < 4; ++tile) {
      wait_copies<4>();
      __syncwarp();
      attend_tile(held, q + tile * tile_bytes, at, bias, p, spot, tile, out);
      if (more) copy_tile(q + tile * tile_bytes + at.own, queries, p, next, tile);
      close_copies();
    }
    spot = next;
  }
}

// Sums of a warp: gradients of k and v of a window, [of 16 tokens][of 8 numbers], and those of the
// table over all its windows, by the rows that query and key are apart.
struct WarpSums {
  float k[4][4][4], v[4][4][4], table[apart][2];
};

template <int by>
__device__ void rotate(float (&table)[apart][2]) {
  float old[apart][2];
#pragma unroll
  for (int i = 0; i < 2 * apart; ++i) old[i / 2][i % 2] = table[i / 2][i % 2];
#pragma unroll
  for (int i = 0; i < 2 * apart; ++i) table[i / 2][i % 2] = old[(i / 2 + by) % apart][i % 2];
}

// Addresses in shared memory: all keys and values, a tile of queries and gradients.
struct GradRows {
  uint32_t k, v, q, grad;
};

template <class T>
__device__ void weigh_tile(Tile<4> (&weights)[4], const GradRows& rows, const LaneAt& at,
                           const float* bias, const FastPlaces& p, const Spot& spot, int tile) {
  float scores[8][4];
  begin_scores(scores, bias, tile);
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const Tile<4> left = left_tile(rows.q, at, k);
#pragma unroll
    for (int n = 0; n < 4; ++n)
      multiply_pair<T>(scores[2 * n], scores[2 * n + 1], left,
                       right_by_columns(rows.k + n * tile_bytes, at, k));
  }
  if (spot.cut()) hide_scores(scores, spot, tile, p.scale);
  weigh_scores<T>(weights, scores, p.scale);
}

// The products of results and their gradients, a row each: what all weights of the row have in
// common.
template <class T>
__device__ void common_of(float (&common)[2], const float (&value)[4][4],
                          const Tile<4> (&grad)[2]) {
  common[0] = common[1] = 0;
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t pair = grad[n / 2].x[n % 2 * 2 + i];
      common[i] +=
          value[n][2 * i] * unpacked<T, 0>(pair) + value[n][2 * i + 1] * unpacked<T, 1>(pair);
    }
  common[0] = row_sum(common[0]);
  common[1] = row_sum(common[1]);
}

// Gradients of the scores of 16 queries and 16 keys, as a left factor. `block`: which keys.
template <class T, int block>
__device__ Tile<4> score_grads_of(const Tile<4>& weights, const Tile<4> (&grad)[2],
                                  const float (&common)[2], uint32_t v, const LaneAt& at,
                                  float (&table)[apart][2]) {
  float grads[2][4];
#pragma unroll
  for (int i = 0; i < 8; ++i) grads[i / 4][i % 4] = -common[i % 4 / 2];
#pragma unroll
  for (int k = 0; k < 2; ++k)
    multiply_pair<T>(grads[0], grads[1], grad[k], right_by_columns(v + block * tile_bytes, at, k));
  Tile<4> left;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float* pair = &grads[i / 2][i % 2 * 2];
    pair[0] *= unpacked<T, 0>(weights.x[i]);
    pair[1] *= unpacked<T, 1>(weights.x[i]);
    float* sums = table[i % 2 - (2 * block + i / 2) + 7];
    sums[0] += pair[0];
    sums[1] += pair[1];
    left.x[i] = packed<T>(pair[0], pair[1]);
  }
  return left;
}

template <class T, int block>
__device__ void block_grads(WarpSums& sums, float (&to_q)[4][4], const Tile<4> (&weights)[4],
                            const Tile<4> (&grad)[2], const float (&common)[2],
                            const GradRows& rows, const LaneAt& at, const Tile<4> (&by_rows)[4]) {
  const Tile<4> scores =
      score_grads_of<T, block>(weights[block], grad, common, rows.v, at, sums.table);
  const Tile<4> to_keys = turned(scores), to_values = turned(weights[block]);
#pragma unroll
  for (int n = 0; n < 2; ++n) {
    multiply_pair<T>(to_q[2 * n], to_q[2 * n + 1], scores,
                     right_by_rows(rows.k + block * tile_bytes, at, n));
    multiply_pair<T>(sums.k[block][2 * n], sums.k[block][2 * n + 1], to_keys, by_rows[n]);
    multiply_pair<T>(sums.v[block][2 * n], sums.v[block][2 * n + 1], to_values, by_rows[2 + n]);
  }
}

template <class T>
struct GradImages {
  HeadImage<const T> q, grad;
  HeadImage<T> to_q, to_k, to_v, value;
};

// 16 queries. Their rows and those of their gradients are free afterwards.
template <class T>
__device__ void tile_grads(WarpSums& sums, const GradRows& rows, const LaneAt& at,
                           const float* bias, const FastPlaces& p, const Spot& spot, int tile,
                           const GradImages<T>& images) {
  Tile<4> weights[4];
  weigh_tile<T>(weights, rows, at, bias, p, spot, tile);
  const Tile<4> grad[2] = {left_tile(rows.grad, at, 0), left_tile(rows.grad, at, 1)};
  const Tile<4> by_rows[4] = {right_by_rows(rows.q, at, 0), right_by_rows(rows.q, at, 1),
                              right_by_rows(rows.grad, at, 0), right_by_rows(rows.grad, at, 1)};
  float common[2], products[4][4];
  clear(products);
#pragma unroll
  for (int k = 0; k < 4; ++k)
#pragma unroll
    for (int n = 0; n < 2; ++n)
      multiply_pair<T>(products[2 * n], products[2 * n + 1], weights[k],
                       right_by_rows(rows.v + k * tile_bytes, at, n));
  common_of<T>(common, products, grad);
  __syncwarp();
  if (images.value.data != nullptr)
    store_tile(products, 1.0f, rows.grad, at, images.value, p, spot, 2 * tile);
  clear(products);
  block_grads<T, 0>(sums, products, weights, grad, common, rows, at, by_rows);
  block_grads<T, 1>(sums, products, weights, grad, common, rows, at, by_rows);
  block_grads<T, 2>(sums, products, weights, grad, common, rows, at, by_rows);
  block_grads<T, 3>(sums, products, weights, grad, common, rows, at, by_rows);
  store_tile(products, p.scale, rows.q, at, images.to_q, p, spot, 2 * tile);
  rotate<2>(sums.table);
}

// Lanes of all warps leave their sums; an entry is of all that are so far apart.
__device__ void write_table(const float (&table)[apart][2], float* shared, float* partial) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 2 * apart; ++i)
    shared[(warp * apart + i / 2) * 64 + lane * 2 + i % 2] = table[i / 2][i % 2];
  __syncthreads();
  for (int entry = threadIdx.x; entry < fast_entries; entry += fast_threads) {
    const int across = entry % apart - 7;
    float sum = 0;
    for (int of = 0; of < warp_warps; ++of)
      for (int key = max(0, -across); key < min(8, 8 - across); ++key)
        sum += shared[(of * apart + entry / apart) * 64 + (key + across) * 8 + key];
    partial[entry] = sum;
  }
}

template <class T>
__global__ void __launch_bounds__(fast_threads, 2)
    window_warp_grad_kernel(FastPlaces p, WarpPointers<T> x, int windows, int parts) {
  auto* bias = shared_memory<float>();
  const int warp = threadIdx.x / 32, head = blockIdx.x % p.heads, step = parts * warp_warps;
  const LaneAt at = lane_at();
  const uint32_t q = shared_address(bias) + bias_bytes + warp * grad_rows, grad = q + rows_bytes,
                 keys = grad + rows_bytes;
  const int width = p.heads * warp_head;
  const GradImages<T> images = {part_of_qkv(x.qkv, p, 0, head),
                                {x.grad + head * warp_head, width},
                                part_of_qkv(x.out, p, 0, head),
                                part_of_qkv(x.out, p, 1, head),
                                part_of_qkv(x.out, p, 2, head),
                                {x.value == nullptr ? nullptr : x.value + head * warp_head, width}};
  const auto copy_queries = [&](const Spot& spot, int tile) {
    copy_tile(q + tile * tile_bytes + at.own, images.q, p, spot, tile);
    copy_tile(grad + tile * tile_bytes + at.own, images.grad, p, spot, tile);
  };
  WarpSums sums;
#pragma unroll
  for (int i = 0; i < 2 * apart; ++i) sums.table[i / 2][i % 2] = 0;
  int window = blockIdx.x / p.heads * warp_warps + warp;
  Spot spot = spot_of(p, window < windows ? window : 0);
  if (window < windows) copy_keys_and_values(keys + at.own, x.qkv, p, spot, head);
  close_copies();
  for (int tile = 0; tile < 4; ++tile) {
    if (window < windows) copy_queries(spot, tile);
    close_copies();
  }
  spread_bias(bias, x.table, p, head);
  __syncthreads();
  for (uint32_t now = 0; window < windows; window += step, now ^= 2 * rows_bytes) {
    const bool more = window + step < windows;
    const Spot next = more ? spot_of(p, window + step) : spot;
    if (more) copy_keys_and_values(keys + (now ^ 2 * rows_bytes) + at.own, x.qkv, p, next, head);
    close_copies();
    const uint32_t k = keys + now, v = k + rows_bytes;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      clear(sums.k[i]);
      clear(sums.v[i]);
    }
#pragma unroll 1
    for (int tile = 0; tile < 4; ++tile) {
      wait_copies<4>();
      __syncwarp();
      const uint32_t first = tile * tile_bytes;
      tile_grads(sums, {k, v, q + first, grad + first}, at, bias, p, spot, tile, images);
      if (more) copy_queries(next, tile);
      close_copies();
    }
    rotate<7>(sums.table);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store_tile(sums.k[i], p.scale, k + i * tile_bytes, at, images.to_k, p, spot, 2 * i);
      store_tile(sums.v[i], 1.0f, v + i * tile_bytes, at, images.to_v, p, spot, 2 * i);
    }
    spot = next;
  }
  wait_copies<0>();
  write_table(sums.table, bias + bias_bytes / sizeof(float),
              x.partial + static_cast<int64_t>(blockIdx.x) * fast_entries);
}

template <class T>
using WarpKernel = void(FastPlaces, WarpPointers<T>, int, int);

template <class T>
void launch_warps(WarpKernel<T>* kernel, const WindowPlaces& p, const WindowTensors& x,
                  int64_t parts, uint32_t rows) {
  const auto pointer = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<T*>(const_cast<void*>(tensor.const_data_ptr())) : nullptr;
  };
  const WarpPointers<T> pointers = {
      pointer(x.qkv),
      pointer(x.grad),
      x.table.const_data_ptr<float>(),
      pointer(x.out),
      pointer(x.value),
      x.partial.defined() ? x.partial.mutable_data_ptr<float>() : nullptr};
  const uint32_t bytes = bias_bytes + warp_warps * rows;
  launch(kernel, {parts * p.heads, fast_threads, bytes}, fast_places(p), pointers,
         static_cast<int>(p.windows()), static_cast<int>(parts));
}

}  // namespace

void attend_by_warps(const WindowPlaces& p, const WindowTensors& x) {
  // Three blocks of threads for each of 132 processors, if there are so many windows.
  const int64_t parts =
      std::min(std::max<int64_t>(1, 396 / p.heads), (p.windows() + warp_warps - 1) / warp_warps);
  if (x.qkv.scalar_type() == c10::kBFloat16)
    return launch_warps<c10::BFloat16>(window_warp_kernel, p, x, parts, forward_rows);
  launch_warps<c10::Half>(window_warp_kernel, p, x, parts, forward_rows);
}

void attend_by_warps_grad(const WindowPlaces& p, const WindowTensors& x) {
  if (x.qkv.scalar_type() == c10::kBFloat16)
    return launch_warps<c10::BFloat16>(window_warp_grad_kernel, p, x, p.parts(), grad_rows);
  launch_warps<c10::Half>(window_warp_grad_kernel, p, x, p.parts(), grad_rows);
}

}  // namespace braid::cuda
