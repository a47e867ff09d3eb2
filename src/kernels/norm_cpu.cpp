// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/norm_cpu.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "braid/core/in_parts.h"
#include "kernels/cpu_rows.h"

namespace braid::kernels {
namespace {

// Of one thread.
template <class W>
struct NormSpace {
  explicit NormSpace(int64_t width) : a(static_cast<size_t>(width)), b(a), c(a), d(a), e(a) {}
  std::vector<W> a, b, c, d, e;
};

template <class W>
struct NormWeights {
  NormWeights(const at::Tensor& weight, const at::Tensor& bias)
      : weight(RowsIn<W>(weight).values(0, weight.numel())),
        bias(RowsIn<W>(bias).values(0, weight.numel())) {}
  std::vector<W> weight, bias;  // zeros without a bias
};

// What the branch of a row is multiplied by.
template <class W>
class BranchShares {
 public:
  BranchShares(const at::Tensor& keep, double rate, int64_t rows)
      : keep_(keep.defined() ? keep.const_data_ptr<bool>() : nullptr),
        rows_(keep.defined() ? rows / keep.numel() : 1),
        kept_(static_cast<W>(1 / (1 - rate))) {}
  W operator()(int64_t row) const {
    return keep_ == nullptr ? W(1) : keep_[row / rows_] ? kept_ : W(0);
  }

 private:
  const bool* keep_;
  int64_t rows_;  // of a sample
  W kept_;
};

template <class W>
class CpuNorm {
 public:
  explicit CpuNorm(const NormRun& run)
      : width_(run.x.size(1)),
        centred_(run.bias.defined()),
        eps_(static_cast<W>(run.eps)),
        x_(run.x),
        branch_(run.branch),
        kept_(run.sum),
        sum_(run.sum),
        y_(run.y),
        statistics_(run.statistics.mutable_data_ptr<W>()),
        weights_(run.weight, run.bias),
        shares_(run.keep, run.rate, run.x.size(0)) {}

  void rows(int64_t begin, int64_t end) const {
    NormSpace<W> space(width_);
    for (int64_t row = begin; row < end; ++row) {
      const W* x = input(row, space);
      W* y = y_.row(row, space.d);
      widest([&] { normalise(x, y, statistics_ + row * (centred_ ? 2 : 1)); });
      y_.done(row, space.d);
    }
  }

 private:
  // x, or the sum of x and branch as it is kept.
  const W* input(int64_t row, NormSpace<W>& space) const {
    const W* x = x_.row(row, space.a);
    if (!branch_) return x;
    const W *branch = branch_.row(row, space.b), share = shares_(row);
    W* sum = sum_.row(row, space.c);
    widest([&] { along(width_, [&](int64_t i) { sum[i] = x[i] + share * branch[i]; }); });
    sum_.done(row, space.c);
    return kept_.row(row, space.c);
  }

  BRAID_INLINE void normalise(const W* x, W* y, W* statistics) const {
    const W *weight = weights_.weight.data(), *bias = weights_.bias.data();
    const W count = static_cast<W>(width_);
    const W mean = centred_ ? sum_along<W>(width_, [&](int64_t i) { return x[i]; }) / count : W(0);
    const W squares =
        sum_along<W>(width_, [&](int64_t i) { return (x[i] - mean) * (x[i] - mean); });
    const W scale = 1 / std::sqrt(squares / count + eps_);
    if (centred_) *statistics++ = mean;
    *statistics = scale;
    along(width_, [&](int64_t i) { y[i] = (x[i] - mean) * scale * weight[i] + bias[i]; });
  }

  int64_t width_;
  bool centred_;
  W eps_;
  RowsIn<W> x_, branch_, kept_;
  RowsOut<W> sum_, y_;
  W* statistics_;
  NormWeights<W> weights_;
  BranchShares<W> shares_;
};

template <class W>
void norm_cpu(const NormRun& run) {
  const CpuNorm<W> norm(run);
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, run.x.size(1)));
  in_parts(run.x.size(0), grain, [&](int64_t begin, int64_t end) { norm.rows(begin, end); });
}

template <class W>
struct WeightSums {
  explicit WeightSums(int64_t width) : weight(static_cast<size_t>(width)), bias(weight) {}
  std::vector<W> weight, bias;
};

template <class W>
struct NormGradRow {
  const W *grad, *sum, *grad_sum;  // grad_sum: null for zeros
  W *weighted, *grad_x, *y;        // weighted: space; y: null if it is not wanted
  W mean, scale;
};

template <class W>
class CpuNormGrad {
 public:
  explicit CpuNormGrad(const NormGradRun& run)
      : width_(run.sum.size(1)),
        centred_(run.statistics.size(1) == 2),
        grad_(run.grad),
        sum_(run.sum),
        grad_sum_(run.grad_sum),
        grad_x_(run.grad_x),
        grad_branch_(run.grad_branch),
        y_(run.y),
        statistics_(run.statistics.const_data_ptr<W>()),
        weights_(run.weight, run.bias),
        shares_(run.keep, run.rate, run.sum.size(0)) {}

  void rows(int64_t begin, int64_t end, WeightSums<W>& sums) const {
    NormSpace<W> space(width_), more(width_);
    for (int64_t row = begin; row < end; ++row) {
      const W* statistics = statistics_ + row * (centred_ ? 2 : 1);
      const NormGradRow<W> one = {.grad = grad_.row(row, space.a),
                                  .sum = sum_.row(row, space.b),
                                  .grad_sum = grad_sum_ ? grad_sum_.row(row, space.c) : nullptr,
                                  .weighted = more.a.data(),
                                  .grad_x = grad_x_.row(row, space.d),
                                  .y = y_ ? y_.row(row, space.e) : nullptr,
                                  .mean = centred_ ? statistics[0] : W(0),
                                  .scale = statistics[centred_ ? 1 : 0]};
      widest([&] { gradients(one, sums); });
      if (y_) y_.done(row, space.e);
      if (grad_branch_) to_branch(row, one.grad_x, more.b);
      grad_x_.done(row, space.d);
    }
  }

 private:
  BRAID_INLINE void gradients(const NormGradRow<W>& r, WeightSums<W>& sums) const {
    const W *weight = weights_.weight.data(), *bias = weights_.bias.data();
    W *to_weight = sums.weight.data(), *to_bias = sums.bias.data();
    const auto unit = [&](int64_t i) { return (r.sum[i] - r.mean) * r.scale; };
    along(width_, [&](int64_t i) {
      to_weight[i] += r.grad[i] * unit(i);
      to_bias[i] += r.grad[i];
      r.weighted[i] = r.grad[i] * weight[i];
    });
    const W count = static_cast<W>(width_);
    const W part = sum_along<W>(width_, [&](int64_t i) { return r.weighted[i] * unit(i); }) / count;
    const W level =
        centred_ ? sum_along<W>(width_, [&](int64_t i) { return r.weighted[i]; }) / count : W(0);
    if (r.y != nullptr) along(width_, [&](int64_t i) { r.y[i] = unit(i) * weight[i] + bias[i]; });
    const auto to_x = [&](int64_t i) { return r.scale * (r.weighted[i] - level - unit(i) * part); };
    if (r.grad_sum == nullptr)
      along(width_, [&](int64_t i) { r.grad_x[i] = to_x(i); });
    else
      along(width_, [&](int64_t i) { r.grad_x[i] = r.grad_sum[i] + to_x(i); });
  }

  void to_branch(int64_t row, const W* grad_x, std::vector<W>& space) const {
    const W share = shares_(row);
    W* to = grad_branch_.row(row, space);
    widest([&] { along(width_, [&](int64_t i) { to[i] = share * grad_x[i]; }); });
    grad_branch_.done(row, space);
  }

  int64_t width_;
  bool centred_;
  RowsIn<W> grad_, sum_, grad_sum_;
  RowsOut<W> grad_x_, grad_branch_, y_;
  const W* statistics_;
  NormWeights<W> weights_;
  BranchShares<W> shares_;
};

// Rows of a part one after the other; parts do not depend on the number of threads.
int64_t norm_cpu_parts(int64_t rows) { return std::min<int64_t>(rows, 32); }

template <class W>
void norm_grad_cpu(const NormGradRun& run) {
  const int64_t rows = run.sum.size(0), width = run.sum.size(1), parts = norm_cpu_parts(rows);
  const CpuNormGrad<W> norm(run);
  std::vector<WeightSums<W>> sums(static_cast<size_t>(parts), WeightSums<W>(width));
  in_parts(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part)
      norm.rows(part * rows / parts, (part + 1) * rows / parts, sums[static_cast<size_t>(part)]);
  });
  WeightSums<W> all(width);
  for (const WeightSums<W>& part : sums)
    for (size_t i = 0; i < static_cast<size_t>(width); ++i) {
      all.weight[i] += part.weight[i];
      all.bias[i] += part.bias[i];
    }
  RowsOut<W>(run.grad_weight).store(0, all.weight);
  RowsOut<W>(run.grad_bias).store(0, all.bias);
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
