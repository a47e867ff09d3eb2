// SPDX-License-Identifier: BSD-3-Clause
// map_rows that sums the rows of its last output on the way, as they are written:
//
//   at::Tensor total = map_and_sum<Add, 2, 1>({a, b}, {sum}, Add{}, at::kFloat);   // [width]
#pragma once
#include <ATen/ops/zeros.h>

#include "cuda/column_sums.cuh"

namespace braid::cuda {

constexpr int map_rows_together = 2;  // rows of a thread, in flight together

template <class T, int Width, int In, int Out, class F>
__global__ void __launch_bounds__(sum_threads, 4)
    map_and_sum_kernel(RowViews<In> in, RowViews<Out> out, SumPlan plan, F f,
                       at::opmath_type<T>* stretches) {
  using Wide = at::opmath_type<T>;
  using Piece = Pack<T, Width>;
  __shared__ Wide held[sum_threads * Width];
  const int64_t column = (plan.first_pack() + plan.lane()) * Width;
  Wide sum[Width] = {};
  int64_t row = plan.first_row();
  const auto place = [&](const RowView& view, int r) {
    return reinterpret_cast<Piece*>(static_cast<T*>(view.data) +
                                    (row + r * plan.strands) * view.stride + column);
  };
  const auto map = [&](auto together) {
    Piece loaded[together.value][In];
#pragma unroll
    for (int r = 0; r < together.value; ++r)
#pragma unroll
      for (int i = 0; i < In; ++i) loaded[r][i] = *place(in.of[i], r);
#pragma unroll
    for (int r = 0; r < together.value; ++r) {
      Piece stored[Out];
#pragma unroll
      for (int e = 0; e < Width; ++e) {
        Wide x[In], y[Out];
#pragma unroll
        for (int i = 0; i < In; ++i) x[i] = static_cast<Wide>(loaded[r][i].at[e]);
        f(x, y);
#pragma unroll
        for (int i = 0; i < Out; ++i) stored[i].at[e] = static_cast<T>(y[i]);
        sum[e] += static_cast<Wide>(stored[Out - 1].at[e]);
      }
#pragma unroll
      for (int i = 0; i < Out; ++i) *place(out.of[i], r) = stored[i];
    }
  };
  if (column < plan.width) {
    plan.go<map_rows_together>(row, map);
    plan.go<1>(row, map);
  }
  write_stretch(sum, held, plan, stretches);
}

// Outputs as in map_rows; the sum in `dtype`.
template <class F, int In, int Out>
at::Tensor map_and_sum(const std::array<at::Tensor, In>& inputs,
                       const std::array<at::Tensor, Out>& outputs, const F& f,
                       c10::ScalarType dtype) {
  const at::Tensor& like = inputs[0];
  const c10::cuda::CUDAGuard guard(like.device());
  if (like.numel() == 0) return at::zeros({like.size(-1)}, like.options().dtype(dtype));
  at::Tensor sum = at::empty({like.size(-1)}, like.options().dtype(dtype));
  const MappedRows<In, Out> rows(inputs, outputs);
  const SumPlan plan =
      sum_plan(rows.rows, rows.width, rows.wide ? 16 / static_cast<int>(like.element_size()) : 1);
  const at::Tensor stretches = empty_stretches(plan, like);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, like.scalar_type(), "map_and_sum", [&] {
    using Wide = at::opmath_type<scalar_t>;
    constexpr int pack = 16 / sizeof(scalar_t);
    if constexpr (F::template takes<scalar_t>) {
      const auto run = rows.wide ? map_and_sum_kernel<scalar_t, pack, In, Out, F>
                                 : map_and_sum_kernel<scalar_t, 1, In, Out, F>;
      launch(run, {plan.blocks(), plan.threads()}, rows.in, rows.out, plan, f,
             stretches.mutable_data_ptr<Wide>());
      join_stretches<Wide>(stretches, sum);
    } else {
      TORCH_INTERNAL_ASSERT(false, "not a kernel of ", like.scalar_type());
    }
  });
  return sum;
}

}  // namespace braid::cuda
