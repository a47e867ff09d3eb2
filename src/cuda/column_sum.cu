// SPDX-License-Identifier: BSD-3-Clause
// The sum of all rows (kernels/column_sum.h), in two steps whose order is always the same.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "cuda/map_rows.cuh"
#include "kernels/column_sum.h"

namespace braid::cuda {
namespace {

constexpr int lanes = 32, strands = kernels::sum_rows;  // of a block of 256 threads
constexpr int in_flight = 4;                            // rows of a thread

// A thread sums Width neighbouring columns of each eighth row of a stretch.
template <class T, int Width>
__global__ void __launch_bounds__(lanes* strands)
    stretch_kernel(RowView x, int64_t rows, int64_t width, int64_t stretch,
                   at::opmath_type<T>* sums) {
  using Wide = at::opmath_type<T>;
  __shared__ Wide held[strands][lanes * Width];
  const int lane = static_cast<int>(threadIdx.x) % lanes, strand = threadIdx.x / lanes;
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * lanes + lane) * Width;
  const int64_t begin = blockIdx.y * stretch, end = min(begin + stretch, rows);
  Wide sum[Width] = {};
  if (column < width) {
    const T* in = static_cast<const T*>(x.data) + column;
    for (int64_t row = begin + strand; row < end; row += strands * in_flight) {
      Pack<T, Width> loaded[in_flight];
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
        if (row + i * strands < end)
          loaded[i] = *reinterpret_cast<const Pack<T, Width>*>(in + (row + i * strands) * x.stride);
#pragma unroll
      for (int i = 0; i < in_flight; ++i)
        if (row + i * strands < end)
#pragma unroll
          for (int e = 0; e < Width; ++e) sum[e] += static_cast<Wide>(loaded[i].at[e]);
    }
  }
#pragma unroll
  for (int e = 0; e < Width; ++e) held[strand][e * lanes + lane] = sum[e];
  __syncthreads();
  for (int i = threadIdx.x; i < lanes * Width; i += lanes * strands) {
    Wide all = 0;
#pragma unroll
    for (int s = 0; s < strands; ++s) all += held[s][i];
    const int64_t at = (static_cast<int64_t>(blockIdx.x) * lanes + i % lanes) * Width + i / lanes;
    if (at < width) sums[blockIdx.y * width + at] = all;
  }
}

template <class Wide, class Out>
__global__ void __launch_bounds__(lanes* strands)
    join_kernel(const Wide* sums, int64_t stretches, int64_t width, Out* out) {
  __shared__ Wide held[strands][lanes];
  const int lane = static_cast<int>(threadIdx.x) % lanes, strand = threadIdx.x / lanes;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * lanes + lane;
  Wide sum = 0;
  if (column < width)
    for (int64_t i = strand; i < stretches; i += strands) sum += sums[i * width + column];
  held[strand][lane] = sum;
  __syncthreads();
  if (strand > 0 || column >= width) return;
  for (int s = 1; s < strands; ++s) sum += held[s][lane];
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
    const int64_t of_block = lanes * (wide ? pack : 1);
    const dim3 grid(static_cast<unsigned>((width + of_block - 1) / of_block),
                    static_cast<unsigned>(stretches));
    const auto run = wide ? stretch_kernel<scalar_t, pack> : stretch_kernel<scalar_t, 1>;
    run<<<grid, lanes * strands, 0, stream>>>(view, rows, width, stretch,
                                              sums.mutable_data_ptr<Wide>());
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    const auto joins = static_cast<unsigned>((width + lanes - 1) / lanes);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "column_sum", [&] {
      join_kernel<Wide, scalar_t><<<joins, lanes * strands, 0, stream>>>(
          sums.const_data_ptr<Wide>(), stretches, width, sum.mutable_data_ptr<scalar_t>());
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  });
  return sum;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("column_sum", &column_sum); }

}  // namespace
}  // namespace braid::cuda
