// SPDX-License-Identifier: BSD-3-Clause
// Rotary positions of q and k in one launch (kernels/rotary.h). A thread holds the angles of some
// elements of a token and turns these of several heads: the tables are read once for all of them.
#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>

#include "cuda/aligned.h"
#include "cuda/map_rows.cuh"

namespace braid::cuda {
namespace {

constexpr int turn_threads = 256, turn_heads = 8;  // heads of a thread

struct Heads {
  const void* in;
  void* out;  // [batch, tokens, heads, width]
  int64_t batch_stride, token_stride, head_stride;
  int heads;
};

template <class T, int Width>
__global__ void __launch_bounds__(turn_threads)
    rotary_kernel(Heads q, Heads k, const at::opmath_type<T>* cos, const at::opmath_type<T>* sin,
                  int64_t all, int64_t tokens, int half, bool back) {
  using Wide = at::opmath_type<T>;
  using Part = Pack<T, Width>;
  const int packs = half / Width;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * turn_threads + threadIdx.x;
  const int64_t at = index / packs;  // token of the batch
  if (at >= all) return;
  const int first = static_cast<int>(index - at * packs) * Width;
  const int64_t sample = at / tokens, token = at - sample * tokens;
  Wide c[Width], s[Width];
#pragma unroll
  for (int i = 0; i < Width; ++i) {
    c[i] = cos[token * half + first + i];
    s[i] = sin[token * half + first + i];
    if (back) s[i] = -s[i];
  }
  const int begin = static_cast<int>(blockIdx.y) * turn_heads;
  const int end = min(begin + turn_heads, q.heads + k.heads);
#pragma unroll 4
  for (int head = begin; head < end; ++head) {
    const bool key = head >= q.heads;
    const Heads& of = key ? k : q;
    const int number = key ? head - q.heads : head;
    const T* in = static_cast<const T*>(of.in) + sample * of.batch_stride +
                  token * of.token_stride + number * of.head_stride + first;
    T* out = static_cast<T*>(of.out) + (at * of.heads + number) * 2 * half + first;
    const Part low = *reinterpret_cast<const Part*>(in);
    const Part high = *reinterpret_cast<const Part*>(in + half);
    Part to_low, to_high;
#pragma unroll
    for (int i = 0; i < Width; ++i) {
      const Wide x = static_cast<Wide>(low.at[i]), y = static_cast<Wide>(high.at[i]);
      to_low.at[i] = static_cast<T>(x * c[i] - y * s[i]);
      to_high.at[i] = static_cast<T>(y * c[i] + x * s[i]);
    }
    *reinterpret_cast<Part*>(out) = to_low;
    *reinterpret_cast<Part*>(out + half) = to_high;
  }
}

Heads heads_of(const at::Tensor& x, const at::Tensor& out) {
  return {x.const_data_ptr(), out.mutable_data_ptr(),     x.stride(0), x.stride(1),
          x.stride(2),        static_cast<int>(x.size(2))};
}

bool heads_fit_packs(const Heads& x, int64_t element) {
  return aligned(16, {x.in},
                 {x.batch_stride * element, x.token_stride * element, x.head_stride * element});
}

at::Tensor last_in_one(const at::Tensor& x) { return x.stride(3) == 1 ? x : x.contiguous(); }

std::tuple<at::Tensor, at::Tensor> rotary(const at::Tensor& given_q, const at::Tensor& given_k,
                                          const at::Tensor& cos, const at::Tensor& sin, bool back) {
  const c10::cuda::CUDAGuard guard(given_q.device());
  at::Tensor out_q = at::empty(given_q.sizes(), given_q.options());
  at::Tensor out_k = at::empty(given_k.sizes(), given_k.options());
  const at::Tensor q = last_in_one(given_q), k = last_in_one(given_k);
  const int64_t all = q.size(0) * q.size(1), half = q.size(3) / 2;
  if (all == 0 || half == 0) return {out_q, out_k};
  const Heads of_q = heads_of(q, out_q), of_k = heads_of(k, out_k);
  const int64_t element = q.element_size();
  const bool wide =
      half * element % 16 == 0 && heads_fit_packs(of_q, element) && heads_fit_packs(of_k, element);
  const auto groups =
      static_cast<unsigned>((of_q.heads + of_k.heads + turn_heads - 1) / turn_heads);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, q.scalar_type(), "rotary", [&] {
    using Wide = at::opmath_type<scalar_t>;
    constexpr int pack = 16 / sizeof(scalar_t);
    const int64_t threads = all * (half / (wide ? pack : 1));
    const dim3 grid(static_cast<unsigned>((threads + turn_threads - 1) / turn_threads), groups);
    const auto run = wide ? rotary_kernel<scalar_t, pack> : rotary_kernel<scalar_t, 1>;
    launch(run, {grid, turn_threads}, of_q, of_k, cos.const_data_ptr<Wide>(),
           sin.const_data_ptr<Wide>(), all, q.size(1), static_cast<int>(half), back);
  });
  return {out_q, out_k};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("rotary", &rotary); }

}  // namespace
}  // namespace braid::cuda
