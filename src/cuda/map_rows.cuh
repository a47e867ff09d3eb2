// SPDX-License-Identifier: BSD-3-Clause
// Elementwise kernels over rows that may lie apart (parts of a wider product): loads and stores of
// 16 bytes where alignment allows, arithmetic in fp32 or better.
//
//   struct Add {
//     template <class T> static constexpr bool takes = true;   // tensors of T
//     template <class A> __device__ void operator()(const A (&x)[2], A (&y)[1]) const
//     { y[0] = x[0] + x[1]; }
//   };
//   map_rows<Add, 2, 1>({a, b}, {sum}, Add{});       // tensors [..., width] of one shape and dtype
#pragma once
#include <array>
#include <cstdint>

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <ATen/core/Tensor.h>

#include "cuda/aligned.h"
#include "cuda/launch.cuh"
#include "kernels/rows.h"

namespace braid::cuda {

constexpr int map_threads = 256, map_packs = 2;  // packs of a thread, in flight together

template <class T, int Width>
struct alignas(sizeof(T) * Width) Pack {
  T at[Width];
};

struct RowView {
  void* data;
  int64_t stride;  // elements from row to row
};

template <int Count>
struct RowViews {
  RowView of[Count];
};

template <class T, int Width, int In, int Out, class F>
__global__ void __launch_bounds__(map_threads)
    map_rows_kernel(RowViews<In> in, RowViews<Out> out, int64_t packs, uint32_t of_row, F f) {
  using Wide = at::opmath_type<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * map_threads * map_packs + threadIdx.x;
  Pack<T, Width> loaded[map_packs][In];
  int64_t row[map_packs];
  int64_t column[map_packs];
#pragma unroll
  for (int p = 0; p < map_packs; ++p) {
    const int64_t index = first + p * map_threads;
    if (index >= packs) break;
    row[p] = packs <= 0xffffffffLL ? static_cast<uint32_t>(index) / of_row : index / of_row;
    column[p] = (index - row[p] * of_row) * Width;
#pragma unroll
    for (int i = 0; i < In; ++i)
      loaded[p][i] = *reinterpret_cast<const Pack<T, Width>*>(static_cast<const T*>(in.of[i].data) +
                                                              row[p] * in.of[i].stride + column[p]);
  }
#pragma unroll
  for (int p = 0; p < map_packs; ++p) {
    if (first + p * map_threads >= packs) break;
    Pack<T, Width> stored[Out];
#pragma unroll
    for (int e = 0; e < Width; ++e) {
      Wide x[In], y[Out];
#pragma unroll
      for (int i = 0; i < In; ++i) x[i] = static_cast<Wide>(loaded[p][i].at[e]);
      f(x, y);
#pragma unroll
      for (int i = 0; i < Out; ++i) stored[i].at[e] = static_cast<T>(y[i]);
    }
#pragma unroll
    for (int i = 0; i < Out; ++i)
      *reinterpret_cast<Pack<T, Width>*>(static_cast<T*>(out.of[i].data) +
                                         row[p] * out.of[i].stride + column[p]) = stored[i];
  }
}

template <int Count>
bool fit_packs(const RowViews<Count>& views, int64_t element) {
  for (const RowView& view : views.of)
    if (!aligned(16, {view.data}, {view.stride * element})) return false;
  return true;
}

template <class T, int Width, int In, int Out, class F>
void launch_map(const RowViews<In>& in, const RowViews<Out>& out, int64_t rows, int64_t width,
                const F& f) {
  const int64_t of_row = width / Width, packs = rows * of_row;
  const int64_t blocks = (packs + map_threads * map_packs - 1) / (map_threads * map_packs);
  launch(map_rows_kernel<T, Width, In, Out, F>, {blocks, map_threads}, in, out, packs,
         static_cast<uint32_t>(of_row), f);
}

// Inputs and outputs [..., width] of one shape and dtype as the kernels take them.
template <int In, int Out>
struct MappedRows {
  std::array<at::Tensor, In> held;  // copies, if any, until the launch
  RowViews<In> in;
  RowViews<Out> out;
  int64_t width, rows;
  bool wide;  // in packs of 16 bytes

  MappedRows(const std::array<at::Tensor, In>& inputs, const std::array<at::Tensor, Out>& outputs)
      : width(inputs[0].size(-1)), rows(inputs[0].numel() / width) {
    const int64_t element = inputs[0].element_size();
    for (int i = 0; i < In; ++i) {
      held[i] = kernels::side_by_side_rows(inputs[i]);
      in.of[i] = {const_cast<void*>(held[i].const_data_ptr()), held[i].stride(0)};
    }
    for (int i = 0; i < Out; ++i) {
      const at::Tensor flat = outputs[i].view({-1, width});
      out.of[i] = {flat.mutable_data_ptr(), flat.stride(0)};
    }
    wide = width * element % 16 == 0 && fit_packs(in, element) && fit_packs(out, element);
  }
};

// outputs[i] = f of the inputs, element by element; an output may be an input. Outputs must have
// evenly spaced rows.
template <class F, int In, int Out>
void map_rows(const std::array<at::Tensor, In>& inputs, const std::array<at::Tensor, Out>& outputs,
              const F& f) {
  const at::Tensor& like = inputs[0];
  if (like.numel() == 0) return;
  const c10::cuda::CUDAGuard guard(like.device());
  const MappedRows<In, Out> all(inputs, outputs);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, like.scalar_type(), "map_rows", [&] {
    constexpr int pack = 16 / sizeof(scalar_t);
    if constexpr (F::template takes<scalar_t>) {
      if (all.wide)
        launch_map<scalar_t, pack>(all.in, all.out, all.rows, all.width, f);
      else
        launch_map<scalar_t, 1>(all.in, all.out, all.rows, all.width, f);
    } else {
      TORCH_INTERNAL_ASSERT(false, "not a kernel of ", like.scalar_type());
    }
  });
}

}  // namespace braid::cuda
