// SPDX-License-Identifier: BSD-3-Clause
// The forward pass of kernels/norm.h on the GPU; its CPU twin is norm_on_cpu.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <tuple>
#include <type_traits>
#include <vector>

#include "cuda/norm_rows.cuh"

namespace braid::cuda {
namespace {

template <class W, class X, class C, class P>
struct NormArguments {
  Row<X> x, sum;
  Row<C> branch, y;
  Row<P> weight, bias;
  W* statistics;
  int64_t rows;
  int width;
  int pitch;         // numbers of a row of branch and y: zeros behind those of x
  W eps, each;       // each: 1 / width
  Shares<W> shares;  // of the branch
};

template <class W>
__device__ void keep_statistics(W* statistics, int64_t row, bool centred, W mean, W scale) {
  if (centred) statistics[2 * row] = mean;
  statistics[centred ? 2 * row + 1 : row] = scale;
}

// Mean and 1 / std of a row that lies in registers; places beyond the row hold zeros.
template <int Items, int Vec, class W>
__device__ void row_statistics(const W (&x)[Items][Vec], RowThreads where, int width, W each, W eps,
                               bool centred, W& mean, W& scale) {
  __shared__ W slots[2][norm_block / 32];
  const int lane = where.lane();
  W sum[1] = {W(0)};
  mean = W(0);
  if (centred) {
#pragma unroll
    for (int i = 0; i < Items; ++i)
#pragma unroll
      for (int j = 0; j < Vec; ++j) sum[0] += x[i][j];
    row_sums<1>(sum, slots[0], where);
    mean = sum[0] * each;
    sum[0] = W(0);
  }
#pragma unroll
  for (int i = 0; i < Items; ++i)
    if ((i * where.threads + lane) * Vec < width)
#pragma unroll
      for (int j = 0; j < Vec; ++j) sum[0] += (x[i][j] - mean) * (x[i][j] - mean);
  row_sums<1>(sum, slots[1], where);
  scale = rsqrt(sum[0] * each + eps);
}

template <class W, class X, class C, class P, int Vec, int Items>
__global__ void __launch_bounds__(norm_block, Items* Vec * sizeof(W) <= 64 ? 4 : 2)
    norm_kernel(NormArguments<W, X, C, P> a, RowThreads where) {
  int64_t row = static_cast<int64_t>(blockIdx.x) * where.groups() + where.group();
  if (row - where.behind() >= a.rows) return;  // all threads of the row, or of two
  row = min(row, a.rows - 1);
  const int lane = where.lane();
  const int64_t begin = row * a.width, wide = row * a.pitch;
  const W share = a.shares.of(row);
  W x[Items][Vec] = {}, other[Items][Vec] = {};
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const int column = (i * where.threads + lane) * Vec;
    if (column < a.width) a.x.read(begin + column, x[i]);
    if (column < a.width && a.branch.here()) a.branch.read(wide + column, other[i]);
  }
  if (a.branch.here()) {
#pragma unroll
    for (int i = 0; i < Items; ++i) {
      const int column = (i * where.threads + lane) * Vec;
#pragma unroll
      for (int j = 0; j < Vec; ++j) x[i][j] = a.x.rounded(x[i][j] + share * other[i][j]);
      if (column < a.width) a.sum.write(begin + column, x[i]);
    }
  }
  W mean, scale;
  row_statistics(x, where, a.width, a.each, a.eps, a.bias.here(), mean, scale);
  if (lane == 0) keep_statistics(a.statistics, row, a.bias.here(), mean, scale);
#pragma unroll
  for (int i = 0; i < Items; ++i) {
    const int column = (i * where.threads + lane) * Vec;
    if (column >= a.width) continue;
    W weight[Vec], bias[Vec] = {};
    a.weight.read(column, weight);
    if (a.bias.here()) a.bias.read(column, bias);
#pragma unroll
    for (int j = 0; j < Vec; ++j) weight[j] = (x[i][j] - mean) * scale * weight[j] + bias[j];
    a.y.write(wide + column, weight);
  }
  write_zeros(a.y, wide, a.width + lane, a.pitch, where.threads);
}

// Rows too long for registers: read again for each of the three steps.
template <class W, class Value>
__device__ W long_row_sum(int width, W* slots, const Value& value) {
  W sum[1] = {W(0)};
  for (int i = static_cast<int>(threadIdx.x); i < width; i += norm_block) sum[0] += value(i);
  row_sums<1>(sum, slots, {norm_block});
  return sum[0];
}

template <class W>
__global__ void norm_long_kernel(NormArguments<W, AnyType, AnyType, AnyType> a) {
  __shared__ W slots[2][norm_block / 32];
  const int64_t row = blockIdx.x, begin = row * a.width, wide = row * a.pitch;
  const bool added = a.branch.here(), centred = a.bias.here();
  for (int i = static_cast<int>(threadIdx.x); added && i < a.width; i += norm_block) {
    W x[1], other[1];
    a.x.read(begin + i, x);
    a.branch.read(wide + i, other);
    x[0] += a.shares.of(row) * other[0];
    a.sum.write(begin + i, x);
  }
  const Row<AnyType> from = added ? a.sum : a.x;  // a thread reads what it has written
  const auto x_at = [&](int i) {
    W x[1];
    from.read(begin + i, x);
    return x[0];
  };
  const W mean = centred ? long_row_sum<W>(a.width, slots[0], x_at) / W(a.width) : W(0);
  const W squares = long_row_sum<W>(a.width, slots[1], [&](int i) {
    const W x = x_at(i) - mean;
    return x * x;
  });
  const W scale = W(1) / sqrt(squares / W(a.width) + a.eps);
  if (threadIdx.x == 0) keep_statistics(a.statistics, row, centred, mean, scale);
  for (int i = static_cast<int>(threadIdx.x); i < a.width; i += norm_block) {
    W weight[1], bias[1] = {W(0)};
    a.weight.read(i, weight);
    if (centred) a.bias.read(i, bias);
    const W y[1] = {(x_at(i) - mean) * scale * weight[0] + bias[0]};
    a.y.write(wide + i, y);
  }
  write_zeros(a.y, wide, a.width + static_cast<int>(threadIdx.x), a.pitch, norm_block);
}

struct NormLaunch {
  at::Tensor x, branch, weight, bias, sum, y, statistics;
  double eps;
  c10::ScalarType sums;
  int64_t rows, width;
  at::Tensor keep;
  double rate;

  template <class X, class C, class P>
  bool fits(int vec) const {
    constexpr auto of_x = c10::CppTypeToScalarType<X>::value,
                   of_c = c10::CppTypeToScalarType<C>::value,
                   of_p = c10::CppTypeToScalarType<P>::value;
    return absent_or(x, of_x) && absent_or(branch, of_c) && absent_or(y, of_c) &&
           absent_or(weight, of_p) && absent_or(bias, of_p) &&
           in_pieces({x, branch, weight, bias, sum, y}, width, vec) && y.size(-1) % vec == 0 &&
           row_plan(width, vec).threads > 0;
  }

  template <class W, class X, class C, class P>
  NormArguments<W, X, C, P> arguments() const {
    return {row_of<X>(x),
            row_of<X>(sum),
            row_of<C>(branch),
            row_of<C>(y),
            row_of<P>(weight),
            row_of<P>(bias),
            statistics.mutable_data_ptr<W>(),
            rows,
            static_cast<int>(width),
            static_cast<int>(y.size(-1)),
            static_cast<W>(eps),
            W(1) / static_cast<W>(width),
            shares_of<W>(keep, rate, rows)};
  }

  template <class W, class X, class C, class P, int Vec>
  void with() const {
    const RowPlan plan = row_plan(width, Vec);
    if constexpr (std::is_same_v<X, AnyType>)
      if (plan.threads == 0) {
        launch(norm_long_kernel<W>, {rows, norm_block}, arguments<W, X, C, P>());
        return;
      }
    const int64_t in_block = norm_block / plan.threads;
    const int64_t blocks = (rows + in_block - 1) / in_block;
    with_items<Vec>(plan.items, [&](auto items) {
      launch(norm_kernel<W, X, C, P, Vec, items.value>, {blocks, norm_block},
             arguments<W, X, C, P>(), RowThreads{plan.threads});
    });
  }
};

std::tuple<at::Tensor, at::Tensor, at::Tensor> norm(
    const at::Tensor& given, const std::optional<at::Tensor>& branch,
    const std::optional<at::Tensor>& keep, double rate, const at::Tensor& weight,
    const std::optional<at::Tensor>& bias, double eps, c10::ScalarType dtype, int64_t lanes) {
  const c10::cuda::CUDAGuard guard(given.device());
  const int64_t width = given.size(-1), rows = width == 0 ? 0 : given.numel() / width;
  const auto sums = given.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<int64_t> sizes = given.sizes().vec();
  sizes.back() = lanes;
  at::Tensor sum, y = at::empty(sizes, given.options().dtype(dtype));
  if (branch) sum = at::empty(given.sizes(), given.options());
  at::Tensor statistics = at::empty({rows, bias ? 2 : 1}, given.options().dtype(sums));
  if (rows == 0) return {sum, y, statistics};
  TORCH_CHECK(width < (int64_t{1} << 30), "rows of ", width, " numbers are too long for a norm");
  with_row_types(NormLaunch{given.contiguous(), branch ? branch->contiguous() : at::Tensor(),
                            weight.contiguous(), bias ? bias->contiguous() : at::Tensor(), sum, y,
                            statistics, eps, sums, rows, width, keep.value_or(at::Tensor()), rate});
  return {sum, y, statistics};
}

TORCH_LIBRARY_IMPL(braid, CUDA, library) {
  library.impl("layer_norm", &norm);
  library.impl("rms_norm", &norm);
}

}  // namespace
}  // namespace braid::cuda
