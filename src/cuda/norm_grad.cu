// SPDX-License-Identifier: BSD-3-Clause
// The backward pass of kernels/norm.h on the GPU; its CPU twin is norm_grad_on_cpu. Each block
// takes every 264th handful of rows and adds up its share of the weights' gradients in registers; a
// second kernel adds the shares, always in the same order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <initializer_list>
#include <tuple>
#include <type_traits>

#include "cuda/norm_rows.cuh"
#include "kernels/norm_parts.h"

namespace braid::cuda {
namespace {

template <class W, class X, class C, class P>
struct NormGradArguments {
  Row<C> grad, grad_branch, y;
  Row<X> grad_sum, sum, grad_x;
  Row<P> weight, bias;  // bias: for y alone
  const W* statistics;
  W* parts;  // [1 to 3][blocks][width]
  int64_t rows;
  int width;
  int pitch;         // numbers of a row of grad, grad_branch and y: zeros behind those of x
  Shares<W> shares;  // of the branch
};

template <class W>
struct RowStatistics {
  W mean, scale;
};
template <bool Centred, class W>
__device__ RowStatistics<W> statistics_of(const W* statistics, int64_t row) {
  if constexpr (Centred) return {statistics[2 * row], statistics[2 * row + 1]};
  return {W(0), statistics[row]};
}

// The rows of a block have each a share of the sums; `shared` holds one row of numbers.
template <int Items, int Vec, class W>
__device__ void write_part(W (&sums)[Items][Vec], W* part, W* shared, RowThreads where, int width) {
  for (int group = 0; group < where.groups(); ++group) {
    if (where.group() == group)
#pragma unroll
      for (int i = 0; i < Items; ++i) {
        const int column = (i * where.threads + where.lane()) * Vec;
        if (column >= width) continue;
        W* to = group + 1 == where.groups() ? part : shared;
#pragma unroll
        for (int j = 0; j < Vec; ++j) {
          if (group > 0) sums[i][j] += shared[column + j];
          to[column + j] = sums[i][j];
        }
      }
    __syncthreads();
  }
}

// Brings the next row into the L2 cache while this one is worked on; that takes no registers.
template <int Items, int Vec, class Arguments>
__device__ void ask_for_row(const Arguments& a, int64_t row, RowThreads where) {
  const int64_t begin = row * a.width;
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const int column = (i * where.threads + where.lane()) * Vec;
    if (column >= a.width) continue;
    a.grad.ask(row * a.pitch + column);
    a.sum.ask(begin + column);
    if (a.grad_sum.here()) a.grad_sum.ask(begin + column);
  }
}

// What the forward pass has written, of the row in units of its deviation.
template <int Items, int Vec, class W, class Arguments>
__device__ void write_again(const Arguments& a, int64_t row, const W (&unit)[Items][Vec],
                            RowThreads where) {
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const int column = (i * where.threads + where.lane()) * Vec;
    if (column >= a.width) continue;
    W weight[Vec], bias[Vec] = {};
    a.weight.read(column, weight);
    if (a.bias.here()) a.bias.read(column, bias);
#pragma unroll
    for (int j = 0; j < Vec; ++j) weight[j] = unit[i][j] * weight[j] + bias[j];
    a.y.write(row + column, weight);
  }
  write_zeros(a.y, row, a.width + where.lane(), a.pitch, where.threads);
}

// What goes to the branch, as it was rounded, column by column.
template <int Vec, class W, class Arguments>
__device__ void add_to_sums(const Arguments& a, W (&sums)[Vec], const W (&out)[Vec]) {
#pragma unroll
  for (int j = 0; j < Vec; ++j)
    sums[j] += a.grad_branch.here() ? a.grad_branch.rounded(out[j]) : a.grad_x.rounded(out[j]);
}

// Sums: those of the branch's gradient, too.
template <class W, class X, class C, class P, int Vec, int Items, bool Centred, bool Sums>
__global__ void __launch_bounds__(norm_block, Items* Vec * sizeof(W) <= 64 ? 2 : 1)
    norm_grad_kernel(NormGradArguments<W, X, C, P> a, RowThreads where) {
  __shared__ W slots[2][2 * norm_block / 32];
  // 16 numbers a thread, and all of them in six places, are more than 128 registers hold: then the
  // gradient of the sum is read where it is needed, from the L2 cache.
  constexpr bool late = Centred && Items * Vec * sizeof(W) == 64;
  const int lane = where.lane();
  W of_weight[Items][Vec] = {}, of_bias[Centred ? Items : 1][Vec] = {},
    of_branch[Sums ? Items : 1][Vec] = {};
  const int64_t step = static_cast<int64_t>(gridDim.x) * where.groups();
  const W each = W(1) / W(a.width);
  int turn = 0;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * where.groups() + where.group();
       row - where.behind() < a.rows; row += step, turn ^= 1) {
    const bool mine = row < a.rows;
    const int width = mine ? a.width : 0;
    const int64_t begin = row * a.width, wide = row * a.pitch;
    W grad[Items][Vec] = {}, unit[Items][Vec] = {}, out[late ? 1 : Items][Vec] = {};
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int column = (i * where.threads + lane) * Vec;
      if (column >= width) continue;
      a.grad.read(wide + column, grad[i]);
      a.sum.read(begin + column, unit[i]);
      if constexpr (!late) a.grad_sum.read_or_zeros(begin + column, out[i]);
    }
    if (row + step < a.rows) ask_for_row<Items, Vec>(a, row + step, where);
    const auto [mean, scale] = statistics_of<Centred>(a.statistics, mine ? row : 0);
    W sums[2] = {W(0), W(0)};
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int column = (i * where.threads + lane) * Vec;
      if (column >= width) continue;
      W weight[Vec];
      a.weight.read(column, weight);
#pragma unroll
      for (int j = 0; j < Vec; ++j) {
        unit[i][j] = (unit[i][j] - mean) * scale;
        of_weight[i][j] += grad[i][j] * unit[i][j];
        if constexpr (Centred) of_bias[i][j] += grad[i][j];
        grad[i][j] *= weight[j];
        sums[0] += grad[i][j] * unit[i][j];
        if constexpr (Centred) sums[1] += grad[i][j];
      }
    }
    if (a.y.here() && mine) write_again<Items, Vec>(a, wide, unit, where);
    row_sums<2>(sums, slots[turn], where);
    const W along = sums[0] * each, level = sums[1] * each;
    if (!mine) continue;
    const W share = a.shares.of(row);
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int column = (i * where.threads + lane) * Vec;
      if (column >= a.width) continue;
      W(&to)[Vec] = out[late ? 0 : i];
      if constexpr (late) a.grad_sum.read_or_zeros(begin + column, to);
#pragma unroll
      for (int j = 0; j < Vec; ++j) to[j] += scale * (grad[i][j] - level - unit[i][j] * along);
      a.grad_x.write(begin + column, to);
      if (a.grad_branch.here()) {
#pragma unroll
        for (int j = 0; j < Vec; ++j) to[j] *= share;
        a.grad_branch.write(wide + column, to);
      }
      if constexpr (Sums) add_to_sums(a, of_branch[i], to);
    }
    if (a.grad_branch.here())
      write_zeros(a.grad_branch, wide, a.width + lane, a.pitch, where.threads);
  }
  W* shared = shared_memory<W>();
  W* part = a.parts + static_cast<int64_t>(blockIdx.x) * a.width;
  const int64_t next = static_cast<int64_t>(gridDim.x) * a.width;
  write_part(of_weight, part, shared, where, a.width);
  if constexpr (Centred) write_part(of_bias, part += next, shared, where, a.width);
  if constexpr (Sums) write_part(of_branch, part += next, shared, where, a.width);
}

// Rows too long for registers. A thread owns its columns of the block's part in memory.
template <class W, bool Centred, bool Sums>
__global__ void norm_grad_long_kernel(NormGradArguments<W, AnyType, AnyType, AnyType> a) {
  __shared__ W slots[2][2 * norm_block / 32];
  W* of_weight = a.parts + static_cast<int64_t>(blockIdx.x) * a.width;
  W* of_bias = of_weight + static_cast<int64_t>(gridDim.x) * a.width;
  W* of_branch = of_weight + (Centred ? 2 : 1) * static_cast<int64_t>(gridDim.x) * a.width;
  const int first = static_cast<int>(threadIdx.x);
  for (int i = first; i < a.width; i += norm_block) {
    of_weight[i] = W(0);
    if constexpr (Centred) of_bias[i] = W(0);
    if constexpr (Sums) of_branch[i] = W(0);
  }
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x, turn ^= 1) {
    const int64_t begin = row * a.width, wide = row * a.pitch;
    const auto [mean, scale] = statistics_of<Centred>(a.statistics, row);
    W sums[2] = {W(0), W(0)};
    W grad[1], unit[1], weight[1];
    for (int i = first; i < a.width; i += norm_block) {
      a.grad.read(wide + i, grad);
      a.sum.read(begin + i, unit);
      a.weight.read(i, weight);
      unit[0] = (unit[0] - mean) * scale;
      of_weight[i] += grad[0] * unit[0];
      if constexpr (Centred) of_bias[i] += grad[0];
      sums[0] += grad[0] * weight[0] * unit[0];
      if constexpr (Centred) sums[1] += grad[0] * weight[0];
    }
    row_sums<2>(sums, slots[turn], {norm_block});
    const W along = sums[0] / W(a.width), level = sums[1] / W(a.width);
    for (int i = first; i < a.width; i += norm_block) {
      a.grad.read(wide + i, grad);
      a.sum.read(begin + i, unit);
      a.weight.read(i, weight);
      W out[1] = {W(0)};
      if (a.grad_sum.here()) a.grad_sum.read(begin + i, out);
      out[0] += scale * (grad[0] * weight[0] - level - (unit[0] - mean) * scale * along);
      a.grad_x.write(begin + i, out);
      out[0] *= a.shares.of(row);
      if (a.grad_branch.here()) a.grad_branch.write(wide + i, out);
      if constexpr (Sums)
        of_branch[i] += (a.grad_branch.here() ? a.grad_branch : a.grad_x).rounded(out[0]);
      if (!a.y.here()) continue;
      W bias[1] = {W(0)};
      if (a.bias.here()) a.bias.read(i, bias);
      out[0] = (unit[0] - mean) * scale * weight[0] + bias[0];
      a.y.write(wide + i, out);
    }
    for (const auto& rows : {a.grad_branch, a.y})
      if (rows.here()) write_zeros(rows, wide, a.width + first, a.pitch, norm_block);
  }
}

constexpr int part_rows = 16;

// Where the sums of all parts go: of weight, of bias and of the branch, those that are wanted.
struct PartSums {
  Row<AnyType> to[3];
  int lengths[3];  // zeros from `width` on
};

template <class W>
__global__ void norm_parts_kernel(const W* parts, PartSums sums, int count, int width) {
  __shared__ W held[part_rows][33];
  const int column = static_cast<int>(blockIdx.x) * 32 + static_cast<int>(threadIdx.x);
  const W* from = parts + static_cast<int64_t>(blockIdx.y) * count * width;
  W sum = W(0);
  if (column < width)
    for (int part = static_cast<int>(threadIdx.y); part < count; part += part_rows)
      sum += from[static_cast<int64_t>(part) * width + column];
  held[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= sums.lengths[blockIdx.y]) return;
  W all[1] = {W(0)};
  for (int i = 0; i < part_rows; ++i) all[0] += held[i][threadIdx.x];
  sums.to[blockIdx.y].write(column, all);
}

struct NormGradLaunch {
  at::Tensor grad, grad_sum, sum, weight, bias, statistics, grad_x, grad_branch, y, parts;
  c10::ScalarType sums;
  int64_t rows, width;
  at::Tensor keep;
  double rate;
  bool of_branch;                           // its sums
  static constexpr int most_with_sums = 4;  // numbers at once: eight would not have the registers

  template <class X, class C, class P>
  bool fits(int vec) const {
    if (of_branch && vec > most_with_sums) return false;
    constexpr auto of_c = c10::CppTypeToScalarType<C>::value,
                   of_p = c10::CppTypeToScalarType<P>::value;
    return absent_or(sum, c10::CppTypeToScalarType<X>::value) && absent_or(grad, of_c) &&
           absent_or(grad_branch, of_c) && absent_or(weight, of_p) && absent_or(bias, of_p) &&
           in_pieces({grad, grad_sum, sum, weight, bias, grad_x, grad_branch, y}, width, vec) &&
           grad.size(-1) % vec == 0 && row_plan(width, vec).threads > 0;
  }

  template <class W, class X, class C, class P>
  NormGradArguments<W, X, C, P> arguments() const {
    return {row_of<C>(grad),
            row_of<C>(grad_branch),
            row_of<C>(y),
            row_of<X>(grad_sum),
            row_of<X>(sum),
            row_of<X>(grad_x),
            row_of<P>(weight),
            row_of<P>(bias),
            statistics.const_data_ptr<W>(),
            parts.mutable_data_ptr<W>(),
            rows,
            static_cast<int>(width),
            static_cast<int>(grad.size(-1)),
            shares_of<W>(keep, rate, rows)};
  }

  template <class W, class X, class C, class P, int Vec>
  void with() const {
    if (statistics.size(1) != 2)
      go<W, X, C, P, Vec, false, false>();
    else if (!of_branch)
      go<W, X, C, P, Vec, true, false>();
    else if constexpr (Vec <= most_with_sums)
      go<W, X, C, P, Vec, true, true>();
  }

  template <class W, class X, class C, class P, int Vec, bool Centred, bool Sums>
  void go() const {
    const int64_t blocks = parts.size(1);
    RowPlan plan = row_plan(width, Vec);
    if (Sums && plan.items == 4 && plan.threads < norm_block)  // else more than registers hold
      plan = {2 * plan.threads, 2};
    if constexpr (std::is_same_v<X, AnyType>)
      if (plan.threads == 0) {
        launch(norm_grad_long_kernel<W, Centred, Sums>, {blocks, norm_block},
               arguments<W, X, C, P>());
        return;
      }
    const int64_t shared = plan.threads < norm_block ? width * sizeof(W) : 0;
    with_items<Vec>(plan.items, [&](auto items) {
      launch(norm_grad_kernel<W, X, C, P, Vec, items.value, Centred, Sums>,
             {blocks, norm_block, shared}, arguments<W, X, C, P>(), RowThreads{plan.threads});
    });
  }
};

void add_parts(const at::Tensor& parts, std::initializer_list<at::Tensor> wanted) {
  const int count = static_cast<int>(parts.size(1)), width = static_cast<int>(parts.size(2));
  PartSums sums = {};
  unsigned found = 0;
  int longest = width;
  for (const at::Tensor& each : wanted) {
    if (!each.defined()) continue;
    sums.to[found] = row_of<AnyType>(each);
    sums.lengths[found] = static_cast<int>(each.numel());
    longest = std::max(longest, sums.lengths[found++]);
  }
  const dim3 grid(static_cast<unsigned>((longest + 31) / 32), found), block(32, part_rows);
  if (parts.scalar_type() == at::kDouble)
    launch(norm_parts_kernel<double>, {grid, block}, parts.const_data_ptr<double>(), sums, count,
           width);
  else
    launch(norm_parts_kernel<float>, {grid, block}, parts.const_data_ptr<float>(), sums, count,
           width);
}

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

Grads norm_grad(const at::Tensor& grad, const std::optional<at::Tensor>& grad_sum,
                const at::Tensor& sum, const at::Tensor& weight,
                const std::optional<at::Tensor>& bias, const at::Tensor& statistics,
                std::optional<c10::ScalarType> branch, const std::optional<at::Tensor>& keep,
                double rate, bool again, std::optional<c10::ScalarType> of_branch) {
  const c10::cuda::CUDAGuard guard(sum.device());
  const int64_t width = sum.size(-1), rows = statistics.size(0), numbers = statistics.size(1);
  TORCH_CHECK(!of_branch || numbers == 2, "norms without a mean give no sums of a branch");
  at::Tensor grad_x = at::empty(sum.sizes(), sum.options()), grad_branch, grad_bias, y, total;
  if (branch && (keep || *branch != sum.scalar_type() || grad.size(-1) != width))
    grad_branch = at::empty(grad.sizes(), sum.options().dtype(*branch));
  at::Tensor grad_weight = at::empty(weight.sizes(), weight.options());
  if (numbers == 2) grad_bias = at::empty(weight.sizes(), weight.options());
  if (again) y = at::empty(grad.sizes(), grad.options());
  if (of_branch) total = at::empty({grad.size(-1)}, sum.options().dtype(*of_branch));
  const Grads results = {grad_x, grad_branch, grad_weight, grad_bias, y, total};
  if (rows == 0) {
    for (at::Tensor each : {grad_weight, grad_bias, total})
      if (each.defined()) each.zero_();
    return results;
  }
  const at::Tensor parts = at::empty(
      {numbers + (of_branch ? 1 : 0), kernels::norm_parts(rows), width}, statistics.options());
  with_row_types(NormGradLaunch{grad.contiguous(), grad_sum ? grad_sum->contiguous() : at::Tensor(),
                                sum.contiguous(), weight.contiguous(),
                                bias && again ? bias->contiguous() : at::Tensor(), statistics,
                                grad_x, grad_branch, y, parts, statistics.scalar_type(), rows,
                                width, keep.value_or(at::Tensor()), rate, of_branch.has_value()});
  add_parts(parts, {grad_weight, grad_bias, total});
  return results;
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("layer_norm_grad", &norm_grad);
  library.impl("rms_norm_grad", &norm_grad);
}

}  // namespace
}  // namespace braid::cuda
