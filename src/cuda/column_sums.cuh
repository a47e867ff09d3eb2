// SPDX-License-Identifier: BSD-3-Clause
// Sums over all rows of [rows, width] in two steps whose order depends on sizes alone: a block of
// threads sums a stretch of rows into one row of a buffer, then join_stretches adds these.
#pragma once
#include <ATen/ops/empty.h>

#include <type_traits>

#include "cuda/map_rows.cuh"
#include "kernels/column_sum.h"

namespace braid::cuda {

constexpr int sum_threads = 256;  // of a block, at most

// Neighbouring threads have neighbouring packs of columns, `across` threads a row; the others have
// the rows behind, so that a block reads what lies together.
struct SumPlan {
  int64_t rows, width, stretch;  // stretch: rows of a block
  unsigned stretches, column_blocks;
  int across, strands;

  dim3 blocks() const { return {column_blocks, stretches}; }
  unsigned threads() const { return static_cast<unsigned>(across * strands); }

  __device__ int lane() const { return static_cast<int>(threadIdx.x) % across; }
  __device__ int strand() const { return static_cast<int>(threadIdx.x) / across; }
  __device__ int64_t first_pack() const { return static_cast<int64_t>(blockIdx.x) * across; }
  __device__ int64_t first_row() const { return blockIdx.y * stretch + strand(); }
  __device__ int64_t end() const { return min((blockIdx.y + 1) * stretch, rows); }

  // Calls work(integral_constant<int, Together>) as long as the thread has that many rows left.
  template <int Together, class Work>
  __device__ void go(int64_t& row, const Work& work) const {
    for (; row + (Together - 1) * strands < end(); row += Together * strands)
      work(std::integral_constant<int, Together>());
  }
};

inline SumPlan sum_plan(int64_t rows, int64_t width, int64_t pack) {
  const int64_t packs = width / pack, blocks = (packs + sum_threads - 1) / sum_threads,
                across = (packs + blocks - 1) / blocks,
                stretches = kernels::sum_stretches(rows, width);
  return {rows,
          width,
          (rows + stretches - 1) / stretches,
          static_cast<unsigned>(stretches),
          static_cast<unsigned>(blocks),
          static_cast<int>(across),
          static_cast<int>(sum_threads / across)};
}

inline at::Tensor empty_stretches(const SumPlan& plan, const at::Tensor& x) {
  const auto dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::empty({plan.stretches, plan.width}, x.options().dtype(dtype));
}

// The sums of all threads of the block; `held`: sum_threads * Width numbers.
template <class Wide, int Width>
__device__ void write_stretch(const Wide (&sum)[Width], Wide* held, const SumPlan& plan,
                              Wide* stretches) {
  const int across = plan.across;
#pragma unroll
  for (int e = 0; e < Width; ++e) held[(plan.strand() * Width + e) * across + plan.lane()] = sum[e];
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < across * Width; i += across * plan.strands) {
    Wide all = 0;
    for (int s = 0; s < plan.strands; ++s) all += held[s * Width * across + i];
    const int64_t column = (plan.first_pack() + i % across) * Width + i / across;
    if (column < plan.width) stretches[blockIdx.y * plan.width + column] = all;
  }
}

constexpr int join_lanes = 32, join_strands = 32;

template <class Wide, class Out>
__global__ void __launch_bounds__(join_lanes* join_strands)
    join_stretches_kernel(const Wide* stretches, int64_t count, int64_t width, Out* out) {
  __shared__ Wide held[join_strands][join_lanes];
  const int lane = static_cast<int>(threadIdx.x) % join_lanes, strand = threadIdx.x / join_lanes;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * join_lanes + lane;
  Wide sum = 0;
  if (column < width)
    for (int64_t i = strand; i < count; i += join_strands) sum += stretches[i * width + column];
  held[strand][lane] = sum;
  __syncthreads();
  if (strand > 0 || column >= width) return;
  for (int s = 1; s < join_strands; ++s) sum += held[s][lane];
  out[column] = static_cast<Out>(sum);
}

template <class Wide>
void join_stretches(const at::Tensor& stretches, at::Tensor& sum) {
  const int64_t width = sum.size(0);
  const int64_t blocks = (width + join_lanes - 1) / join_lanes;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, sum.scalar_type(), "column_sum", [&] {
    launch(join_stretches_kernel<Wide, scalar_t>, {blocks, join_lanes * join_strands},
           stretches.const_data_ptr<Wide>(), stretches.size(0), width,
           sum.mutable_data_ptr<scalar_t>());
  });
}

}  // namespace braid::cuda
