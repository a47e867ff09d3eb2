// SPDX-License-Identifier: BSD-3-Clause
// The sum of all rows (kernels/column_sum.h).
#include "cuda/column_sums.cuh"

#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace braid::cuda {
namespace {

constexpr int in_flight = 8;  // rows of a thread

template <class T, int Width>
__global__ void __launch_bounds__(sum_threads, 4)
    stretch_kernel(RowView x, SumPlan plan, at::opmath_type<T>* stretches) {
  using Wide = at::opmath_type<T>;
  using Piece = Pack<T, Width>;
  __shared__ Wide held[sum_threads * Width];
  const int64_t column = (plan.first_pack() + plan.lane()) * Width;
  Wide sum[Width] = {};
  if (column < plan.width) {
    int64_t row = plan.first_row();
    const T* in = static_cast<const T*>(x.data) + row * x.stride + column;
    const int64_t step = plan.strands * x.stride;
    const auto add = [&](auto together) {
      Piece loaded[together.value];
#pragma unroll
      for (int i = 0; i < together.value; ++i, in += step)
        loaded[i] = *reinterpret_cast<const Piece*>(in);
#pragma unroll
      for (int i = 0; i < together.value; ++i)
#pragma unroll
        for (int e = 0; e < Width; ++e) sum[e] += static_cast<Wide>(loaded[i].at[e]);
    };
    plan.go<in_flight>(row, add);
    plan.go<in_flight / 2>(row, add);
    plan.go<1>(row, add);
  }
  write_stretch(sum, held, plan, stretches);
}

at::Tensor column_sum(const at::Tensor& given, c10::ScalarType dtype) {
  const c10::cuda::CUDAGuard guard(given.device());
  const at::Tensor x = kernels::side_by_side_rows(given);
  const int64_t width = x.size(1), element = x.element_size();
  if (x.numel() == 0) return at::zeros({width}, x.options().dtype(dtype));
  at::Tensor sum = at::empty({width}, x.options().dtype(dtype));
  const RowView view = {const_cast<void*>(x.const_data_ptr()), x.stride(0)};
  const bool wide = width * element % 16 == 0 && fit_packs(RowViews<1>{{view}}, element);
  const SumPlan plan = sum_plan(x.size(0), width, wide ? 16 / element : 1);
  const at::Tensor stretches = empty_stretches(plan, x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "column_sum", [&] {
    using Wide = at::opmath_type<scalar_t>;
    constexpr int pack = 16 / sizeof(scalar_t);
    const auto run = wide ? stretch_kernel<scalar_t, pack> : stretch_kernel<scalar_t, 1>;
    launch(run, {plan.blocks(), plan.threads()}, view, plan, stretches.mutable_data_ptr<Wide>());
    join_stretches<Wide>(stretches, sum);
  });
  return sum;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) { library.impl("column_sum", &column_sum); }

}  // namespace
}  // namespace braid::cuda
