// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/norm_cpu.h"

#include <ATen/Dispatch.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "braid/core/in_parts.h"

namespace braid::kernels {
namespace {

// A row in the dtype of sums; undefined: zeros.
template <class W>
void read_norm_row(const at::Tensor& from, int64_t row, std::vector<W>& to) {
  if (!from.defined()) return std::fill(to.begin(), to.end(), W(0));
  const int64_t width = static_cast<int64_t>(to.size());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, from.scalar_type(), "read_norm_row", [&] {
        const scalar_t* values = from.const_data_ptr<scalar_t>() + row * from.size(-1);
        for (int64_t i = 0; i < width; ++i) to[static_cast<size_t>(i)] = static_cast<W>(values[i]);
      });
}

template <class W>
void write_norm_row(const at::Tensor& to, int64_t row, const std::vector<W>& from) {
  if (!to.defined()) return;
  const int64_t width = static_cast<int64_t>(from.size());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, to.scalar_type(), "write_norm_row", [&] {
        scalar_t* values = to.mutable_data_ptr<scalar_t>() + row * to.size(-1);
        for (int64_t i = 0; i < width; ++i)
          values[i] = static_cast<scalar_t>(from[static_cast<size_t>(i)]);
        std::fill(values + width, values + to.size(-1), scalar_t(0));
      });
}

// Eight sums side by side: less rounding, and vector instructions.
template <class W, class Term>
W norm_row_sum(size_t width, const Term& term) {
  std::array<W, 8> sums = {};
  size_t i = 0;
  for (; i + 8 <= width; i += 8)
    for (size_t lane = 0; lane < 8; ++lane) sums[lane] += term(i + lane);
  for (; i < width; ++i) sums[i % 8] += term(i);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <class W>
struct NormRowBuffers {
  explicit NormRowBuffers(size_t width) : a(width), b(width), c(width) {}
  std::vector<W> a, b, c;
};

// What the branch of a row is multiplied by.
template <class W>
W share_of_branch(const at::Tensor& keep, double rate, int64_t row, int64_t rows) {
  if (!keep.defined()) return W(1);
  const int64_t sample = row / (rows / keep.numel());
  return keep.const_data_ptr<bool>()[sample] ? static_cast<W>(1 / (1 - rate)) : W(0);
}

template <class W>
void norm_row(const NormRun& run, int64_t row, NormRowBuffers<W>& space,
              const std::array<std::vector<W>, 2>& weights) {
  std::vector<W>&x = space.a, &other = space.b;
  const size_t width = x.size();
  read_norm_row(run.x, row, x);
  if (run.branch.defined()) {
    read_norm_row(run.branch, row, other);
    const W share = share_of_branch<W>(run.keep, run.rate, row, run.x.size(0));
    for (size_t i = 0; i < width; ++i) x[i] += share * other[i];
    write_norm_row(run.sum, row, x);
    read_norm_row(run.sum, row, x);  // as it was rounded
  }
  const bool centred = run.bias.defined();
  W* statistics = run.statistics.mutable_data_ptr<W>() + row * (centred ? 2 : 1);
  const W count = static_cast<W>(width);
  const W mean = centred ? norm_row_sum<W>(width, [&](size_t i) { return x[i]; }) / count : W(0);
  const auto squares = [&](size_t i) { return (x[i] - mean) * (x[i] - mean); };
  const W scale = 1 / std::sqrt(norm_row_sum<W>(width, squares) / count + static_cast<W>(run.eps));
  if (centred) statistics[0] = mean;
  statistics[centred ? 1 : 0] = scale;
  for (size_t i = 0; i < width; ++i) x[i] = (x[i] - mean) * scale * weights[0][i] + weights[1][i];
  write_norm_row(run.y, row, x);
}

template <class W>
std::array<std::vector<W>, 2> norm_weights(const at::Tensor& weight, const at::Tensor& bias) {
  const size_t width = static_cast<size_t>(weight.numel());
  std::array<std::vector<W>, 2> both = {std::vector<W>(width), std::vector<W>(width)};
  read_norm_row(weight, 0, both[0]);
  read_norm_row(bias, 0, both[1]);
  return both;
}

// Rows of a part one after the other; parts do not depend on the number of threads.
int64_t norm_cpu_parts(int64_t rows) { return std::min<int64_t>(rows, 32); }

template <class W>
void norm_cpu(const NormRun& run) {
  const size_t width = static_cast<size_t>(run.x.size(1));
  const auto weights = norm_weights<W>(run.weight, run.bias);
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, run.x.size(1)));
  in_parts(run.x.size(0), grain, [&](int64_t begin, int64_t end) {
    NormRowBuffers<W> space(width);
    for (int64_t row = begin; row < end; ++row) norm_row<W>(run, row, space, weights);
  });
}

template <class W>
struct WeightSums {
  explicit WeightSums(size_t width) : weight(width), bias(width) {}
  std::vector<W> weight, bias;
};

template <class W>
void norm_grad_row(const NormGradRun& run, int64_t row, NormRowBuffers<W>& space,
                   const std::array<std::vector<W>, 2>& weights, WeightSums<W>& sums) {
  std::vector<W>&grad = space.a, &unit = space.b, &other = space.c;
  const size_t width = grad.size();
  const int64_t numbers = run.statistics.size(1);
  const W* statistics = run.statistics.const_data_ptr<W>() + row * numbers;
  const W mean = numbers == 2 ? statistics[0] : W(0), scale = statistics[numbers - 1];
  read_norm_row(run.grad, row, grad);
  read_norm_row(run.sum, row, unit);
  read_norm_row(run.grad_sum, row, other);
  for (size_t i = 0; i < width; ++i) {
    unit[i] = (unit[i] - mean) * scale;
    sums.weight[i] += grad[i] * unit[i];
    sums.bias[i] += grad[i];
    grad[i] *= weights[0][i];
  }
  const W count = static_cast<W>(width);
  const W along = norm_row_sum<W>(width, [&](size_t i) { return grad[i] * unit[i]; }) / count;
  const W level =
      numbers == 2 ? norm_row_sum<W>(width, [&](size_t i) { return grad[i]; }) / count : W(0);
  for (size_t i = 0; i < width; ++i) other[i] += scale * (grad[i] - level - unit[i] * along);
  write_norm_row(run.grad_x, row, other);
  const W share = share_of_branch<W>(run.keep, run.rate, row, run.sum.size(0));
  for (size_t i = 0; run.keep.defined() && i < width; ++i) other[i] *= share;
  write_norm_row(run.grad_branch, row, other);
  for (size_t i = 0; i < width; ++i) unit[i] = unit[i] * weights[0][i] + weights[1][i];
  write_norm_row(run.y, row, unit);
}

template <class W>
void norm_grad_cpu(const NormGradRun& run) {
  const int64_t rows = run.sum.size(0), parts = norm_cpu_parts(rows);
  const size_t width = static_cast<size_t>(run.sum.size(1));
  const auto weights = norm_weights<W>(run.weight, run.bias);
  std::vector<WeightSums<W>> sums(static_cast<size_t>(parts), WeightSums<W>(width));
  in_parts(parts, 1, [&](int64_t begin, int64_t end) {
    NormRowBuffers<W> space(width);
    for (int64_t part = begin; part < end; ++part)
      for (int64_t row = part * rows / parts; row < (part + 1) * rows / parts; ++row)
        norm_grad_row<W>(run, row, space, weights, sums[static_cast<size_t>(part)]);
  });
  WeightSums<W> all(width);
  for (const WeightSums<W>& part : sums)
    for (size_t i = 0; i < width; ++i) {
      all.weight[i] += part.weight[i];
      all.bias[i] += part.bias[i];
    }
  write_norm_row(run.grad_weight, 0, all.weight);
  write_norm_row(run.grad_bias, 0, all.bias);
}

}  // namespace

void norm_on_cpu(const NormRun& run) {
  run.statistics.scalar_type() == at::kDouble ? norm_cpu<double>(run) : norm_cpu<float>(run);
}

void norm_grad_on_cpu(const NormGradRun& run) {
  run.statistics.scalar_type() == at::kDouble ? norm_grad_cpu<double>(run)
                                              : norm_grad_cpu<float>(run);
}

}  // namespace braid::kernels
