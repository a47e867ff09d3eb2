// SPDX-License-Identifier: BSD-3-Clause
// The sum of all rows (kernels/column_sum.h), in two steps whose order is always the same.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>
#include <type_traits>

#include "cuda/map_rows.cuh"
#include "kernels/column_sum.h"

namespace braid::cuda {
namespace {

constexpr int sum_threads = 256, in_flight = 8;  // rows of a thread
constexpr int join_lanes = 32, join_strands = 32;

// Neighbouring threads have neighbouring columns, Width each, up to `across` threads a row; the
// others have the rows behind, so that a block reads what lies together.
template <class T, int Width>
__global__ void __launch_bounds__(sum_threads, 4)
    stretch_kernel(RowView x, int64_t rows, int64_t width, int64_t stretch, int across,
                   at::opmath_type<T>* sums) {
  using Wide = at::opmath_type<T>;
  __shared__ Wide held[sum_threads * Width];
  const int lane = static_cast<int>(threadIdx.x) % across,
            strand = static_cast<int>(threadIdx.x) / across, strands = sum_threads / across;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * across * Width,
                column = first + lane * Width;
  const int64_t begin = blockIdx.y * stretch, end = min(begin + stretch, rows);
  Wide sum[Width] = {};
  if (column < width && strand < strands) {
    using Piece = Pack<T, Width>;
    const T* in = static_cast<const T*>(x.data) + (begin + strand) * x.stride + column;
    const int64_t step = strands * x.stride;
    const auto add = [&](const Piece& piece) {
#pragma unroll
      for (int e = 0; e < Width; ++e) sum[e] += static_cast<Wide>(piece.at[e]);
    };
    int64_t row = begin + strand;
    const auto go = [&](auto together) {
      for (; row + (together.value - 1) * strands < end; row += together.value * strands) {
        Piece loaded[together.value];
#pragma unroll
        for (int i = 0; i < together.value; ++i, in += step)
          loaded[i] = *reinterpret_cast<const Piece*>(in);
#pragma unroll
        for (int i = 0; i < together.value; ++i) add(loaded[i]);
      }
    };
    go(std::integral_constant<int, in_flight>());
    go(std::integral_constant<int, in_flight / 2>());
    go(std::integral_constant<int, 1>());
  }
  if (strand < strands)
#pragma unroll
    for (int e = 0; e < Width; ++e) held[(strand * Width + e) * across + lane] = sum[e];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < across * Width; i += sum_threads) {
    Wide all = 0;
    for (int s = 0; s < strands; ++s) all += held[s * Width * across + i];
    const int64_t at = first + i % across * Width + i / across;
    if (at < width) sums[blockIdx.y * width + at] = all;
  }
}

template <class Wide, class Out>
__global__ void __launch_bounds__(join_lanes* join_strands)
    join_kernel(const Wide* sums, int64_t stretches, int64_t width, Out* out) {
  __shared__ Wide held[join_strands][join_lanes];
  const int lane = static_cast<int>(threadIdx.x) % join_lanes, strand = threadIdx.x / join_lanes;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * join_lanes + lane;
  Wide sum = 0;
  if (column < width)
    for (int64_t i = strand; i < stretches; i += join_strands) sum += sums[i * width + column];
  held[strand][lane] = sum;
  __syncthreads();
  if (strand > 0 || column >= width) return;
  for (int s = 1; s < join_strands; ++s) sum += held[s][lane];
  out[column] = static_cast<Out>(sum);
}

at::Tensor column_sum(const at::Tensor& given, c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(given.device());
  const at::Tensor x = mapped_rows(given);
  const int64_t rows = x.size(0), width = x.size(1), element = x.element_size();
  if (x.numel() == 0) return at::zeros({width}, x.options().dtype(dtype));
  at::Tensor sum = at::empty({width}, x.options().dtype(dtype));
  const int64_t stretches = kernels::sum_stretches(rows, width);
  const int64_t stretch = (rows + stretches - 1) / stretches;
  const RowView view = {const_cast<void*>(x.const_data_ptr()), x.stride(0)};
  const bool wide = width * element % 16 == 0 && fit_packs(RowViews<1>{{view}}, element);
  const auto stream = c10::cuda::getCurrentCUDAStream();
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "column_sum", [&] {
    using Wide = at::opmath_type<scalar_t>;
    constexpr int pack = 16 / sizeof(scalar_t);
    at::Tensor sums =
        at::empty({stretches, width},
                  x.options().dtype(std::is_same_v<Wide, double> ? at::kDouble : at::kFloat));
    const int64_t packs = wide ? width / pack : width,
                  across = std::min<int64_t>(packs, sum_threads);
    const dim3 grid(static_cast<unsigned>((packs + across - 1) / across),
                    static_cast<unsigned>(stretches));
    const auto run = wide ? stretch_kernel<scalar_t, pack> : stretch_kernel<scalar_t, 1>;
    run<<<grid, sum_threads, 0, stream>>>(view, rows, width, stretch, static_cast<int>(across),
                                          sums.mutable_data_ptr<Wide>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const auto joins = static_cast<unsigned>((width + join_lanes - 1) / join_lanes);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "column_sum", [&] {
      join_kernel<Wide, scalar_t><<<joins, join_lanes * join_strands, 0, stream>>>(
          sums.const_data_ptr<Wide>(), stretches, width, sum.mutable_data_ptr<scalar_t>());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return sum;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("column_sum", &column_sum); }

}  // namespace
}  // namespace braid::cuda
