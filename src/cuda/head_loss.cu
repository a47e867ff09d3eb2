// SPDX-License-Identifier: BSD-3-Clause
// The parts of kernels/head_loss.h on the GPU. A block of threads takes a row of scores: one read
// for maximum and sum together, one more for the gradient, from shared memory as far as the row
// fits there, else from the second cache. Their CPU twins are entropy_in_place_cpu and
// scale_in_place_cpu.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <torch/library.h>

#include <algorithm>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/ptx.cuh"

namespace braid::cuda {
namespace {

constexpr int row_threads = 512, row_warps = row_threads / 32;
constexpr int row_loads = 4;  // vectors that a thread has in flight

template <class T>
using SumOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class T>
struct alignas(16) Sixteen {  // bytes
  static constexpr int count = 16 / sizeof(T);
  T at[count];
};

// exp(x - top). Of 16-bit scores by the fast power of two, which takes no care of the smallest
// numbers.
template <class T>
struct Exponential {
  SumOf<T> top;

  __device__ __forceinline__ SumOf<T> operator()(SumOf<T> x) const {
    if constexpr (sizeof(T) == 2)
      return power_of_two((x - top) * 1.44269504f);
    else
      return exp(x - top);
  }
};

template <class W>
struct RunningSum {  // log of sum = top + log(sum of exp(x - top))
  W top = -INFINITY, sum = 0;
};

template <class T, int count>
__device__ __forceinline__ void add_scores(RunningSum<SumOf<T>>& to, const T (&values)[count]) {
  using W = SumOf<T>;
  W top = to.top;
#pragma unroll
  for (int k = 0; k < count; ++k) top = max(top, static_cast<W>(values[k]));
  if (top == -INFINITY) return;
  const Exponential<T> share{top};
  W sum = to.sum * share(to.top);
#pragma unroll
  for (int k = 0; k < count; ++k) sum += share(static_cast<W>(values[k]));
  to = {top, sum};
}

template <class W>
__device__ __forceinline__ RunningSum<W> both(RunningSum<W> a, RunningSum<W> b) {
  const W top = max(a.top, b.top);
  if (top == -INFINITY) return a;
  return {top, a.sum * exp(a.top - top) + b.sum * exp(b.top - top)};
}

template <class W>
__device__ __forceinline__ RunningSum<W> over_warp(RunningSum<W> mine) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    mine = both<W>(mine, {__shfl_xor_sync(0xffffffffu, mine.top, step),
                          __shfl_xor_sync(0xffffffffu, mine.sum, step)});
  return mine;
}

// The same in all threads.
template <class W>
__device__ W log_sum_of_block(RunningSum<W> mine) {
  __shared__ RunningSum<W> warps[row_warps];
  mine = over_warp<W>(mine);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  mine = over_warp<W>(lane < row_warps ? warps[lane] : RunningSum<W>{});
  return mine.top + log(mine.sum);
}

template <class T>
struct EntropyRows {
  T* scores;
  int64_t stride;  // of a row, in elements
  int classes;
  int vectors;  // of 16 bytes at the beginning of a row; 0 if rows are not aligned
  int cached;   // of these, in shared memory
  SumOf<T>* losses;
  const int64_t* target;
  const SumOf<T>* weight;
  int64_t ignored;
};

template <class T>
__device__ __forceinline__ RunningSum<SumOf<T>> first_read(const EntropyRows<T>& a, const T* row,
                                                           Sixteen<T>* cache) {
  const auto* in = reinterpret_cast<const Sixteen<T>*>(row);
  RunningSum<SumOf<T>> mine;
  for (int i = threadIdx.x; i < a.vectors; i += row_loads * row_threads) {
    Sixteen<T> held[row_loads];
#pragma unroll
    for (int n = 0; n < row_loads; ++n)
      if (i + n * row_threads < a.vectors) held[n] = in[i + n * row_threads];
#pragma unroll
    for (int n = 0; n < row_loads; ++n) {
      const int at = i + n * row_threads;
      if (at < a.vectors) add_scores<T>(mine, held[n].at);
      if (at < a.cached) cache[at] = held[n];
    }
  }
  for (int i = a.vectors * Sixteen<T>::count + threadIdx.x; i < a.classes; i += row_threads) {
    const T one[1] = {row[i]};
    add_scores<T>(mine, one);
  }
  return mine;
}

template <class T>
__device__ __forceinline__ void to_gradients(Sixteen<T>& values, const Exponential<T>& share,
                                             SumOf<T> weight, int wanted) {
  using W = SumOf<T>;
  W shares[Sixteen<T>::count];
#pragma unroll
  for (int k = 0; k < Sixteen<T>::count; ++k) shares[k] = share(static_cast<W>(values.at[k]));
  if (static_cast<unsigned>(wanted) < Sixteen<T>::count) {
#pragma unroll
    for (int k = 0; k < Sixteen<T>::count; ++k)
      if (k == wanted) shares[k] -= W(1);
  }
#pragma unroll
  for (int k = 0; k < Sixteen<T>::count; ++k) values.at[k] = static_cast<T>(shares[k] * weight);
}

template <class T>
__device__ __forceinline__ void store_past_caches(Sixteen<T>* to, const Sixteen<T>& value) {
  __stcs(reinterpret_cast<uint4*>(to), reinterpret_cast<const uint4&>(value));
}

template <class T>
__device__ __forceinline__ void second_read(const EntropyRows<T>& a, T* row,
                                            const Sixteen<T>* cache, const Exponential<T>& share,
                                            SumOf<T> weight, int wanted) {
  auto* all = reinterpret_cast<Sixteen<T>*>(row);
  constexpr int count = Sixteen<T>::count;
  for (int i = threadIdx.x; i < a.vectors; i += row_loads * row_threads) {
    Sixteen<T> held[row_loads];
#pragma unroll
    for (int n = 0; n < row_loads; ++n) {
      const int at = i + n * row_threads;
      if (at < a.vectors) held[n] = at < a.cached ? cache[at] : all[at];
    }
#pragma unroll
    for (int n = 0; n < row_loads; ++n) {
      const int at = i + n * row_threads;
      if (at >= a.vectors) continue;
      to_gradients<T>(held[n], share, weight, wanted - at * count);
      store_past_caches<T>(all + at, held[n]);
    }
  }
  for (int i = a.vectors * count + threadIdx.x; i < a.classes; i += row_threads) {
    const SumOf<T> one = share(static_cast<SumOf<T>>(row[i]));
    row[i] = static_cast<T>((i == wanted ? one - SumOf<T>(1) : one) * weight);
  }
}

template <class T>
__device__ void clear_row(const EntropyRows<T>& a, T* row) {
  const Sixteen<T> nothing = {};
  for (int i = threadIdx.x; i < a.vectors; i += row_threads)
    store_past_caches<T>(reinterpret_cast<Sixteen<T>*>(row) + i, nothing);
  for (int i = a.vectors * Sixteen<T>::count + threadIdx.x; i < a.classes; i += row_threads)
    row[i] = T(0);
}

template <class T>
__global__ void __launch_bounds__(row_threads, 2) entropy_rows_kernel(const EntropyRows<T> a) {
  auto* cache = shared_memory<Sixteen<T>>();
  T* row = a.scores + static_cast<int64_t>(blockIdx.x) * a.stride;
  const int64_t target = a.target[blockIdx.x];
  if (target == a.ignored) {
    if (threadIdx.x == 0) a.losses[blockIdx.x] = 0;
    return clear_row<T>(a, row);
  }
  const bool here = target >= 0 && target < a.classes;
  const int wanted = here ? static_cast<int>(target) : -1;
  SumOf<T> score = 0;
  if (threadIdx.x == 0 && here) score = static_cast<SumOf<T>>(row[wanted]);
  const SumOf<T> log_sum = log_sum_of_block<SumOf<T>>(first_read<T>(a, row, cache));
  if (threadIdx.x == 0) a.losses[blockIdx.x] = log_sum - score;
  second_read<T>(a, row, cache, Exponential<T>{log_sum}, *a.weight, wanted);
}

// So that two blocks fit a multiprocessor.
int64_t row_cache_bytes() {
  const cudaDeviceProp* device = at::cuda::getCurrentDeviceProperties();
  const auto half = static_cast<int64_t>(device->sharedMemPerMultiprocessor) / 2 - 2048;
  return std::min<int64_t>(half, static_cast<int64_t>(device->sharedMemPerBlockOptin) - 1024) / 16 *
         16;
}

template <class T>
void launch_entropy_rows(EntropyRows<T> a, int64_t rows) {
  const bool aligned =
      reinterpret_cast<uintptr_t>(a.scores) % 16 == 0 && a.stride * sizeof(T) % 16 == 0;
  a.vectors = aligned ? a.classes / Sixteen<T>::count : 0;
  a.cached = static_cast<int>(std::min<int64_t>(a.vectors, row_cache_bytes() / 16));
  const auto shared = static_cast<int>(a.cached * sizeof(Sixteen<T>));
  launch(entropy_rows_kernel<T>, {rows, row_threads, shared}, a);
}

void cross_entropy_in_place(const at::Tensor& scores, const at::Tensor& losses,
                            const at::Tensor& target, const at::Tensor& weight, int64_t ignored) {
  const c10::cuda::CUDAGuard guard(scores.device());
  if (scores.size(0) == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, scores.scalar_type(), "cross_entropy_in_place", [&] {
        launch_entropy_rows<scalar_t>({.scores = scores.mutable_data_ptr<scalar_t>(),
                                       .stride = scores.stride(0),
                                       .classes = static_cast<int>(scores.size(1)),
                                       .vectors = 0,
                                       .cached = 0,
                                       .losses = losses.mutable_data_ptr<SumOf<scalar_t>>(),
                                       .target = target.const_data_ptr<int64_t>(),
                                       .weight = weight.const_data_ptr<SumOf<scalar_t>>(),
                                       .ignored = ignored},
                                      scores.size(0));
      });
}

template <class T>
__global__ void scale_kernel(T* values, int64_t count, int64_t vectors, const SumOf<T>* factor) {
  const SumOf<T> by = *factor;
  if (by == SumOf<T>(1)) return;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t mine = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  auto* all = reinterpret_cast<Sixteen<T>*>(values);
  for (int64_t i = mine; i < vectors; i += stride) {
    Sixteen<T> held = all[i];
#pragma unroll
    for (int k = 0; k < Sixteen<T>::count; ++k)
      held.at[k] = static_cast<T>(static_cast<SumOf<T>>(held.at[k]) * by);
    all[i] = held;
  }
  for (int64_t i = vectors * Sixteen<T>::count + mine; i < count; i += stride)
    values[i] = static_cast<T>(static_cast<SumOf<T>>(values[i]) * by);
}

// x is dense.
void scale_in_place(const at::Tensor& x, const at::Tensor& factor) {
  const c10::cuda::CUDAGuard guard(x.device());
  const int64_t count = x.numel();
  if (count == 0) return;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
    scalar_t* values = x.mutable_data_ptr<scalar_t>();
    const bool aligned = reinterpret_cast<uintptr_t>(values) % 16 == 0;
    const int64_t vectors = aligned ? count / Sixteen<scalar_t>::count : 0;
    const int64_t blocks = std::min<int64_t>((count + 2047) / 2048, 132 * 8);
    launch(scale_kernel<scalar_t>, {blocks, 256}, values, count, vectors,
           factor.const_data_ptr<SumOf<scalar_t>>());
  });
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("cross_entropy_in_place", &cross_entropy_in_place);
  library.impl("scale_in_place", &scale_in_place);
}

}  // namespace
}  // namespace braid::cuda
