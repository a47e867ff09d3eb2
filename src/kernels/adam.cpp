// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/adam.h"

#include <ATen/Dispatch.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "braid/core/in_parts.h"
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
using AdamTile = std::array<Wide, adam_tile>;

template <class Wide>
void adam_load(AdamTile<Wide>& tile, const at::Tensor& from, int64_t begin, int64_t count) {
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, from.scalar_type(), "adam_load", [&] {
    const auto* in = static_cast<const scalar_t*>(from.const_data_ptr()) + begin;
    for (int64_t i = 0; i < count; ++i) tile[i] = static_cast<Wide>(in[i]);
  });
}

template <class Wide>
void adam_store(const at::Tensor& to, const AdamTile<Wide>& tile, int64_t begin, int64_t count) {
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::kHalf, c10::kBFloat16, to.scalar_type(), "adam_store", [&] {
    auto* out = static_cast<scalar_t*>(to.mutable_data_ptr()) + begin;
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<scalar_t>(tile[i]);
  });
}

template <class Wide>
void adam_tile_update(AdamTile<Wide>& p, AdamTile<Wide>& g, AdamTile<Wide>& m, AdamTile<Wide>& v,
                      const AdamFactors<Wide>& f, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] *= f.grad;
  // Where both cancel, the next step goes by the sign of what rounding left: torch rounds once.
  if (f.l2 != 0)
    for (int64_t i = 0; i < count; ++i) g[i] = std::fma(f.l2, p[i], g[i]);
  for (int64_t i = 0; i < count; ++i) {
    const Wide grad = g[i];
    m[i] = f.beta1 * m[i] + f.rest1 * grad;
    v[i] = f.beta2 * v[i] + f.rest2 * grad * grad;
    p[i] = p[i] * f.keep - f.size * m[i] / (std::sqrt(v[i]) * f.root + f.eps);
  }
}

struct AdamStreams {
  at::Tensor target, grad, exp_avg, exp_avg_sq, weight;
};

template <class Wide>
void adam_one(const AdamStreams& t, const AdamFactors<Wide>& factors) {
  constexpr int64_t grain = 1 << 14;
  in_parts(t.target.numel(), grain, [&](int64_t first, int64_t last) {
    AdamTile<Wide> p = {}, g = {}, m = {}, v = {};
    for (int64_t begin = first; begin < last; begin += adam_tile) {
      const int64_t count = std::min(adam_tile, last - begin);
      adam_load(p, t.target, begin, count);
      adam_load(g, t.grad, begin, count);
      adam_load(m, t.exp_avg, begin, count);
      adam_load(v, t.exp_avg_sq, begin, count);
      adam_tile_update(p, g, m, v, factors, count);
      adam_store(t.target, p, begin, count);
      adam_store(t.exp_avg, m, begin, count);
      adam_store(t.exp_avg_sq, v, begin, count);
      if (t.weight.defined()) adam_store(t.weight, p, begin, count);
    }
  });
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
