// SPDX-License-Identifier: BSD-3-Clause
// Window attention on tensor cores: windows of 8 x 8, 16-bit numbers, heads up to 64 (those of 32
// have kernels of their own, window_attention_warp.cu). A block of
// four warps has one head of one window, a warp 16 queries of it, with all their 64 scores in
// registers. The backward pass stays with one head and goes from window to window, so that
// gradients of the bias are summed in registers; the next window is loaded meanwhile.
#include <ATen/Dispatch.h>

#include "cuda/launch.cuh"
#include "cuda/window_rows.cuh"

namespace braid::cuda {
namespace {

// From q k^T to exp(score - top); sums: of rows lane / 4 and lane / 4 + 8. Rows of a window are
// tiles: token 8 n + c is pixel c of row n.
__device__ void exp_scores(float (&scores)[8][4], float (&sums)[2], const float* bias,
                           const FastPlaces& p, int window) {
  const int lane = threadIdx.x % 32, query_row = threadIdx.x / 32 * 2, query_column = lane / 4;
  const bool bottom = window / p.columns % p.rows + 1 == p.rows,
             right = window % p.columns + 1 == p.columns;
  const int cut_row = bottom ? fast_side - p.seam_rows : fast_side,
            cut_column = right ? fast_side - p.seam_columns : fast_side;
  const float factor = p.scale * log2_of_e,
              hidden = static_cast<float>(kernels::hidden_score) * log2_of_e;
  float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = query_row + e / 2, key_column = lane % 4 * 2 + e % 2;
      float score =
          scores[n][e] * factor + bias[(row - n + 7) * 15 + query_column - key_column + 7];
      if ((row >= cut_row) != (n >= cut_row) ||
          (query_column >= cut_column) != (key_column >= cut_column))
        score += hidden;
      scores[n][e] = score;
      top[e / 2] = fmaxf(top[e / 2], score);
    }
  sums[0] = sums[1] = 0;
  top[0] = row_max(top[0]);
  top[1] = row_max(top[1]);
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      scores[n][e] = exp2f(scores[n][e] - top[e / 2]);
      sums[e / 2] += scores[n][e];
    }
  sums[0] = row_sum(sums[0]);
  sums[1] = row_sum(sums[1]);
}

template <class T, int head>
__global__ void __launch_bounds__(fast_threads)
    window_fast_kernel(FastPlaces p, const T* qkv, const float* table, T* out) {
  constexpr int size = fast_tokens * pitch_of<head>;
  T* q = shared_memory<T>();
  float* bias = reinterpret_cast<float*>(q + 3 * size);
  const int window = blockIdx.x / p.heads, which = blockIdx.x % p.heads;
  copy_qkv<head>(q, qkv, p, window, which);
  close_copies();
  load_bias(bias, table, p.heads, which);
  wait_copies<0>();
  __syncthreads();
  float scores[8][4], sums[2], result[head / 8][4];
  rows_by_rows<head>(scores, q, q + size);
  exp_scores(scores, sums, bias, p, window);
  clear(result);
#pragma unroll
  for (int k = 0; k < 4; ++k) add_rows<head>(result, as_left<T>(scores, k), q + 2 * size, k * 16);
  // The warp's rows of q were read by itself alone.
  __syncwarp();
  stage_rows<head>(q, result, 1 / sums[0], 1 / sums[1]);
  __syncwarp();
  store_rows<head>(out + which * p.head, q, p, window, p.heads * p.head);
}

// Shared memory of the backward pass: two of {q, k, v, grad}, weights and gradients of scores,
// the bias. At the end the sums for the table lie where the rows were.
template <class T, int head>
struct GradMemory {
  static constexpr int size = fast_tokens * pitch_of<head>;
  T rows[2][4][size];
  T weights[fast_tokens * scores_pitch], scores[fast_tokens * scores_pitch];
  float bias[fast_entries + 3];
};

template <class T>
__device__ void stage_scores(T* to, const float (&scores)[8][4]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * fast_rows + lane / 4;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int column = n * 8 + lane % 4 * 2;
    *reinterpret_cast<uint32_t*>(to + row * scores_pitch + column) =
        packed<T>(scores[n][0], scores[n][1]);
    *reinterpret_cast<uint32_t*>(to + (row + 8) * scores_pitch + column) =
        packed<T>(scores[n][2], scores[n][3]);
  }
}

// The result of the forward pass, from what its kernel has at this point. Its rows go over the
// warp's rows of the weights, which come later.
template <class T, int head>
__device__ void store_value(const float (&scores)[8][4], const float (&share)[2],
                            GradMemory<T, head>& memory, int now, const FastPlaces& p, int window,
                            T* value) {
  static_assert(pitch_of<head> <= scores_pitch);
  float result[head / 8][4];
  clear(result);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    add_rows<head>(result, as_left<T>(scores, k), memory.rows[now][2], k * 16);
  T* rows = memory.weights + threadIdx.x / 32 * fast_rows * (scores_pitch - pitch_of<head>);
  stage_rows<head>(rows, result, share[0], share[1]);
  __syncwarp();
  store_rows<head>(value, rows, p, window, p.heads * p.head);
  __syncwarp();
}

// Weights into shared memory; returns gradients of scores in `grads`.
template <class T, int head>
__device__ void score_grads(float (&grads)[8][4], GradMemory<T, head>& memory, int now,
                            const FastPlaces& p, int window, T* value) {
  float weights[8][4], sums[2];
  rows_by_rows<head>(weights, memory.rows[now][0], memory.rows[now][1]);
  exp_scores(weights, sums, memory.bias, p, window);
  const float share[2] = {1 / sums[0], 1 / sums[1]};
  if (value != nullptr) store_value(weights, share, memory, now, p, window, value);
  rows_by_rows<head>(grads, memory.rows[now][3], memory.rows[now][2]);
  float common[2] = {0, 0};
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      weights[n][e] *= share[e / 2];
      common[e / 2] += weights[n][e] * grads[n][e];
    }
  common[0] = row_sum(common[0]);
  common[1] = row_sum(common[1]);
  stage_scores(memory.weights, weights);
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) grads[n][e] = weights[n][e] * (grads[n][e] - common[e / 2]);
}

template <class T>
struct FastGradPointers {
  const T *qkv, *grad;
  const float* table;
  T *out, *value;  // value: null if it is not wanted
  float* partial;
};

// One window, whose rows have come.
template <class T, int head>
__device__ void window_grads(GradMemory<T, head>& memory, int now, float (&table)[8][4],
                             const FastPlaces& p, int window, int which,
                             const FastGradPointers<T>& x) {
  auto& rows = memory.rows[now];
  float to_q[head / 8][4], to_k[head / 8][4], to_v[head / 8][4];
  clear(to_q);
  {
    float grads[8][4];
    T* value = x.value == nullptr ? nullptr : x.value + which * p.head;
    score_grads(grads, memory, now, p, window, value);
    stage_scores(memory.scores, grads);
#pragma unroll
    for (int k = 0; k < 4; ++k) add_rows<head>(to_q, as_left<T>(grads, k), rows[1], k * 16);
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) table[n][e] += grads[n][e];
  }
  __syncthreads();
  const int first = threadIdx.x / 32 * fast_rows;
  clear(to_k);
  clear(to_v);
#pragma unroll
  for (int k = 0; k < fast_tokens; k += 16) {
    add_rows<head>(to_v, load_a_turned(memory.weights, scores_pitch, first, k), rows[3], k);
    add_rows<head>(to_k, load_a_turned(memory.scores, scores_pitch, first, k), rows[0], k);
  }
  __syncthreads();
  stage_rows<head>(rows[0], to_q, p.scale, p.scale);
  stage_rows<head>(rows[1], to_k, p.scale, p.scale);
  stage_rows<head>(rows[2], to_v, 1.0f, 1.0f);
  __syncwarp();
  for (int of = 0; of < 3; ++of)
    store_rows<head>(x.out + (of * p.heads + which) * p.head, rows[of], p, window,
                     3 * p.heads * p.head);
}

// Sum of the gradients of all pairs of tokens that are so far apart.
__device__ float sum_of_entry(const float* scores, int entry) {
  const int down = entry / 15 - 7, across = entry % 15 - 7;
  float sum = 0;
  for (int row = max(0, -down); row < min(8, 8 - down); ++row)
    for (int column = max(0, -across); column < min(8, 8 - across); ++column)
      sum += scores[((row + down) * 8 + column + across) * (fast_tokens + 1) + row * 8 + column];
  return sum;
}

template <class T, int head>
__global__ void __launch_bounds__(fast_threads, head <= 32 ? 3 : 1)
    window_fast_grad_kernel(FastPlaces p, FastGradPointers<T> x, int windows, int parts) {
  auto& memory = *shared_memory<GradMemory<T, head>>();
  const int part = blockIdx.x / p.heads, which = blockIdx.x % p.heads;
  const auto copy = [&](int to, int window) {
    if (window < windows) {
      copy_qkv<head>(memory.rows[to][0], x.qkv, p, window, which);
      copy_rows<head>(memory.rows[to][3], x.grad + which * p.head, p, window, p.heads * p.head);
    }
    close_copies();
  };
  copy(0, part);
  load_bias(memory.bias, x.table, p.heads, which);
  float sums[8][4];
  clear(sums);
  for (int window = part, now = 0; window < windows; window += parts, now ^= 1) {
    copy(now ^ 1, window + parts);
    wait_copies<1>();
    __syncthreads();
    window_grads(memory, now, sums, p, window, which, x);
    __syncthreads();
  }
  wait_copies<0>();
  __syncthreads();
  float* scores = reinterpret_cast<float*>(&memory);
  const int lane = threadIdx.x % 32, row = threadIdx.x / 32 * fast_rows + lane / 4;
#pragma unroll
  for (int n = 0; n < 8; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      scores[(row + e / 2 * 8) * (fast_tokens + 1) + n * 8 + lane % 4 * 2 + e % 2] = sums[n][e];
  __syncthreads();
  for (int entry = threadIdx.x; entry < fast_entries; entry += fast_threads)
    x.partial[(static_cast<int64_t>(part) * p.heads + which) * fast_entries + entry] =
        sum_of_entry(scores, entry);
}

// body.template operator()<T, head>() for the dtype and head of the tensors.
template <class Body>
void with_head(const WindowPlaces& p, c10::ScalarType dtype, const Body& body) {
  const auto of_type = [&]<class T>() {
    switch ((p.head + 15) / 16 * 16) {
      case 16:
        return body.template operator()<T, 16>();
      case 32:
        return body.template operator()<T, 32>();
      case 48:
        return body.template operator()<T, 48>();
      default:
        return body.template operator()<T, 64>();
    }
  };
  if (dtype == c10::kBFloat16) return of_type.template operator()<c10::BFloat16>();
  of_type.template operator()<c10::Half>();
}

}  // namespace

void attend_fast(const WindowPlaces& p, const WindowTensors& x) {
  if (has_warp_windows(p)) return attend_by_warps(p, x);
  with_head(p, x.qkv.scalar_type(), [&]<class T, int head>() {
    constexpr int64_t bytes = 3 * fast_tokens * pitch_of<head> * sizeof(T) + 4 * fast_entries;
    launch(window_fast_kernel<T, head>, {p.windows() * p.heads, fast_threads, bytes},
           fast_places(p), x.qkv.const_data_ptr<T>(), x.table.const_data_ptr<float>(),
           x.out.mutable_data_ptr<T>());
  });
}

void attend_fast_grad(const WindowPlaces& p, const WindowTensors& x) {
  if (has_warp_windows(p)) return attend_by_warps_grad(p, x);
  with_head(p, x.qkv.scalar_type(), [&]<class T, int head>() {
    constexpr int64_t bytes = sizeof(GradMemory<T, head>);
    launch(window_fast_grad_kernel<T, head>, {p.parts() * p.heads, fast_threads, bytes},
           fast_places(p),
           FastGradPointers<T>{x.qkv.const_data_ptr<T>(), x.grad.const_data_ptr<T>(),
                               x.table.const_data_ptr<float>(), x.out.mutable_data_ptr<T>(),
                               x.value.defined() ? x.value.mutable_data_ptr<T>() : nullptr,
                               x.partial.mutable_data_ptr<float>()},
           static_cast<int>(p.windows()), static_cast<int>(p.parts()));
  });
}

}  // namespace braid::cuda
