// SPDX-License-Identifier: BSD-3-Clause
// The parts of kernels/cross_entropy.h on the GPU, one block of threads a row; their CPU twins are
// row_logsumexp_cpu and grad_cpu.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <type_traits>

#include "cuda/launch.cuh"

namespace braid::cuda {
namespace {

constexpr int entropy_threads = 512;

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <class W>
struct LogSum {  // log of sum = top + log(sum of exp(x - top))
  W top, sum;
};

template <class W>
__device__ LogSum<W> merged(LogSum<W> a, LogSum<W> b) {
  const W top = a.top > b.top ? a.top : b.top;
  if (isinf(top) && top < 0) return {top, W(0)};
  return {top, a.sum * exp(a.top - top) + b.sum * exp(b.top - top)};
}

template <class W>
__device__ LogSum<W> across_warp(LogSum<W> mine) {
  for (int step = 16; step > 0; step /= 2)
    mine = merged<W>(mine, {__shfl_xor_sync(0xffffffffu, mine.top, step),
                            __shfl_xor_sync(0xffffffffu, mine.sum, step)});
  return mine;
}

template <class T>
__global__ void row_logsumexp_kernel(const T* scores, Wide<T>* out, int64_t classes) {
  using W = Wide<T>;
  const T* row = scores + static_cast<int64_t>(blockIdx.x) * classes;
  LogSum<W> mine = {-INFINITY, W(0)};
  for (int64_t i = threadIdx.x; i < classes; i += blockDim.x) {
    const W x = static_cast<W>(row[i]);
    if (x <= mine.top)
      mine.sum += exp(x - mine.top);
    else
      mine = {x, isinf(mine.top) ? W(1) : mine.sum * exp(mine.top - x) + W(1)};
  }
  __shared__ W tops[entropy_threads / 32], sums[entropy_threads / 32];
  mine = across_warp<W>(mine);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (lane == 0) {
    tops[warp] = mine.top;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  if (warp != 0) return;
  mine =
      lane < entropy_threads / 32 ? LogSum<W>{tops[lane], sums[lane]} : LogSum<W>{-INFINITY, W(0)};
  mine = across_warp<W>(mine);
  if (lane == 0) out[blockIdx.x] = mine.top + log(mine.sum);
}

template <class T>
__global__ void cross_entropy_grad_kernel(T* out, const Wide<T>* grad, const T* scores,
                                          const Wide<T>* logsumexp, const int64_t* target,
                                          int64_t classes, int64_t first) {
  using W = Wide<T>;
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * classes;
  const W scale = grad[blockIdx.x], log_sum = logsumexp[blockIdx.x];
  const int64_t wanted = target[blockIdx.x] - first;
  for (int64_t i = threadIdx.x; i < classes; i += blockDim.x) {
    const W share = exp(static_cast<W>(scores[begin + i]) - log_sum);
    out[begin + i] = static_cast<T>((i == wanted ? share - W(1) : share) * scale);
  }
}

at::Tensor row_logsumexp(const at::Tensor& given) {
  const c10::cuda::CUDAGuard guard(given.device());
  const at::Tensor scores = given.contiguous();
  const auto wide = scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor out = at::empty({scores.size(0)}, scores.options().dtype(wide));
  if (scores.size(0) == 0) return out;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, scores.scalar_type(), "row_logsumexp", [&] {
        launch(row_logsumexp_kernel<scalar_t>, {scores.size(0), entropy_threads},
               scores.const_data_ptr<scalar_t>(), out.mutable_data_ptr<Wide<scalar_t>>(),
               scores.size(1));
      });
  return out;
}

at::Tensor cross_entropy_grad(const at::Tensor& grad, const at::Tensor& given,
                              const at::Tensor& logsumexp, const at::Tensor& target,
                              int64_t first) {
  const c10::cuda::CUDAGuard guard(given.device());
  const at::Tensor scores = given.contiguous();
  at::Tensor out = at::empty(scores.sizes(), scores.options());
  if (out.numel() == 0) return out;
  const at::Tensor rows = grad.contiguous(), sums = logsumexp.contiguous(),
                   wanted = target.contiguous();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, scores.scalar_type(), "cross_entropy_grad", [&] {
        launch(cross_entropy_grad_kernel<scalar_t>, {scores.size(0), entropy_threads},
               out.mutable_data_ptr<scalar_t>(), rows.const_data_ptr<Wide<scalar_t>>(),
               scores.const_data_ptr<scalar_t>(), sums.const_data_ptr<Wide<scalar_t>>(),
               wanted.const_data_ptr<int64_t>(), scores.size(1), first);
      });
  return out;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("row_logsumexp", &row_logsumexp);
  library.impl("cross_entropy_grad", &cross_entropy_grad);
}

}  // namespace
}  // namespace braid::cuda
