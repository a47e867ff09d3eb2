// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/adam.h"

#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "braid/core/in_parts.h"
#include "kernels/cpu_rows.h"
#include "kernels/dtype.h"
#include "kernels/meta.h"

namespace braid::kernels {
namespace {

// What one update needs besides the elements, in the dtype that is computed in.
template <class Wide>
struct AdamFactors {
  Wide grad, l2, keep, beta1, rest1, beta2, rest2, size, root, eps;
};

double adam_scalar(const at::Tensor& x) {
  return x.scalar_type() == c10::kDouble ? *x.const_data_ptr<double>() : *x.const_data_ptr<float>();
}

double adam_scalar(MaybeTensor x, double otherwise) {
  return x && x->defined() ? adam_scalar(*x) : otherwise;
}

template <class Wide>
AdamFactors<Wide> adam_factors(const AdamNumbers& n, double factor, double step) {
  const double size = n.lr / (1 - std::pow(n.beta1, step));
  const double root = 1 / std::sqrt(1 - std::pow(n.beta2, step));
  const auto wide = [](double value) { return static_cast<Wide>(value); };
  return {.grad = wide(factor),
          .l2 = wide(n.decoupled ? 0 : n.decay),
          .keep = wide(n.decoupled ? 1 - n.lr * n.decay : 1),
          .beta1 = wide(n.beta1),
          .rest1 = wide(1 - n.beta1),
          .beta2 = wide(n.beta2),
          .rest2 = wide(1 - n.beta2),
          .size = wide(size),
          .root = wide(root),
          .eps = wide(n.eps)};
}

constexpr int64_t adam_tile = 512;  // elements whose streams stay in the first cache

template <class Wide>
struct AdamNumbersOfTile {
  const Wide *target, *grad, *exp_avg, *exp_avg_sq;
  Wide *new_target, *new_exp_avg, *new_exp_avg_sq;  // may be where the old ones are
};

template <class Wide, class Grad>
BRAID_INLINE void adam_update(const AdamNumbersOfTile<Wide>& t, const AdamFactors<Wide>& f,
                              int64_t count, const Grad& grad_at) {
  along(count, [&](int64_t i) {
    const Wide grad = grad_at(i);
    const Wide m = f.beta1 * t.exp_avg[i] + f.rest1 * grad;
    const Wide v = f.beta2 * t.exp_avg_sq[i] + f.rest2 * grad * grad;
    t.new_target[i] = t.target[i] * f.keep - f.size * m / (std::sqrt(v) * f.root + f.eps);
    t.new_exp_avg[i] = m;
    t.new_exp_avg_sq[i] = v;
  });
}

template <class Wide>
BRAID_INLINE void adam_update(const AdamNumbersOfTile<Wide>& t, const AdamFactors<Wide>& f,
                              int64_t count) {
  if (f.l2 == 0) return adam_update(t, f, count, [&](int64_t i) { return t.grad[i] * f.grad; });
  // Where both cancel, the next step goes by the sign of what rounding left: torch rounds once.
  adam_update(t, f, count,
              [&](int64_t i) { return std::fma(f.l2, t.target[i], t.grad[i] * f.grad); });
}

struct AdamStreams {
  at::Tensor target, grad, exp_avg, exp_avg_sq, weight;
};

template <class Wide>
class CpuAdam {
 public:
  CpuAdam(const AdamStreams& t, const AdamFactors<Wide>& factors)
      : factors_(factors),
        target_(t.target),
        grad_(t.grad),
        exp_avg_(t.exp_avg),
        exp_avg_sq_(t.exp_avg_sq),
        new_target_(t.target),
        new_exp_avg_(t.exp_avg),
        new_exp_avg_sq_(t.exp_avg_sq),
        weight_(t.weight) {}

  void update(int64_t first, int64_t last) const {
    for (int64_t begin = first; begin < last; begin += adam_tile)
      update_tile(begin, std::min(adam_tile, last - begin));
  }

 private:
  void update_tile(int64_t begin, int64_t count) const {
    std::array<Wide, adam_tile> p, g, m, v;  // space, for streams of other dtypes
    const AdamNumbersOfTile<Wide> tile = {.target = target_.numbers(begin, count, p.data()),
                                          .grad = grad_.numbers(begin, count, g.data()),
                                          .exp_avg = exp_avg_.numbers(begin, count, m.data()),
                                          .exp_avg_sq = exp_avg_sq_.numbers(begin, count, v.data()),
                                          .new_target = new_target_.place(begin, p.data()),
                                          .new_exp_avg = new_exp_avg_.place(begin, m.data()),
                                          .new_exp_avg_sq = new_exp_avg_sq_.place(begin, v.data())};
    const AdamFactors<Wide> factors = factors_;
    widest([&] { adam_update(tile, factors, count); });
    if (weight_) weight_.write(begin, count, tile.new_target);
    new_target_.done(begin, count, p.data());
    new_exp_avg_.done(begin, count, m.data());
    new_exp_avg_sq_.done(begin, count, v.data());
  }

  AdamFactors<Wide> factors_;
  RowsIn<Wide> target_, grad_, exp_avg_, exp_avg_sq_;
  RowsOut<Wide> new_target_, new_exp_avg_, new_exp_avg_sq_, weight_;
};

template <class Wide>
void adam_one(const AdamStreams& t, const AdamFactors<Wide>& factors) {
  constexpr int64_t grain = 1 << 14;
  const CpuAdam<Wide> adam(t, factors);
  in_parts(t.target.numel(), grain, [&](int64_t first, int64_t last) { adam.update(first, last); });
}

void adam_cpu(at::TensorList targets, at::TensorList grads, at::TensorList exp_avgs,
              at::TensorList exp_avg_sqs, at::TensorList weights, at::TensorList steps, double lr,
              MaybeTensor lr_there, double beta1, double beta2, double eps, double decay,
              bool decoupled, MaybeTensor factor, MaybeTensor found_inf) {
  if (adam_scalar(found_inf, 0) != 0) return;
  const AdamNumbers numbers{.lr = adam_scalar(lr_there, lr),
                            .beta1 = beta1,
                            .beta2 = beta2,
                            .eps = eps,
                            .decay = decay,
                            .decoupled = decoupled};
  const double scale = adam_scalar(factor, 1);
  for (size_t i = 0; i < targets.size(); ++i) {
    const AdamStreams streams{targets[i], grads[i], exp_avgs[i], exp_avg_sqs[i],
                              weights.empty() ? at::Tensor() : weights[i]};
    const double step = adam_scalar(steps[i]);
    if (targets[i].scalar_type() == c10::kDouble)
      adam_one(streams, adam_factors<double>(numbers, scale, step));
    else
      adam_one(streams, adam_factors<float>(numbers, scale, step));
  }
}

void adam_meta(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
               at::TensorList, double, MaybeTensor, double, double, double, double, bool,
               MaybeTensor, MaybeTensor) {}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "adam_(Tensor(a!)[] targets, Tensor[] grads, Tensor(b!)[] exp_avgs, "
      "Tensor(c!)[] exp_avg_sqs, Tensor(d!)[] weights, Tensor[] steps, float lr, "
      "Tensor? lr_there, float beta1, float beta2, float eps, float decay, bool decoupled, "
      "Tensor? factor, Tensor? found_inf) -> ()");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("adam_", &adam_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("adam_", &adam_meta); }

std::optional<at::Tensor> adam_scalar_in(const at::Tensor& value, c10::ScalarType dtype) {
  return value.defined() ? std::optional(value.to(dtype)) : std::nullopt;
}

}  // namespace

void adam(const AdamTensors& t, const AdamNumbers& n) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::adam_", "")
                             .typed<decltype(adam_cpu)>();
  if (t.targets.empty()) return;
  const c10::ScalarType wide = accumulate_dtype(t.targets.front().scalar_type());
  op.call(t.targets, t.grads, t.exp_avgs, t.exp_avg_sqs, t.weights, t.steps, n.lr,
          adam_scalar_in(n.lr_there, c10::kDouble), n.beta1, n.beta2, n.eps, n.decay, n.decoupled,
          adam_scalar_in(n.factor, wide), adam_scalar_in(n.found_inf, wide));
}

}  // namespace braid::kernels
