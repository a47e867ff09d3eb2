// SPDX-License-Identifier: BSD-3-Clause
#include "nn/rotary.h"

#include <numbers>

#include <ATen/ops/arange.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>

namespace braid::nn {

at::Tensor rotary_frequencies(const LlamaOptions& o, at::TensorOptions where) {
  const int64_t width = o.width / o.heads;
  const at::Tensor power = at::arange(0, width, 2, where).div_(static_cast<double>(width));
  at::Tensor plain = at::pow(o.rope_theta, power).reciprocal_();
  if (o.rope_factor == 1) return plain;
  // 1 for waves shorter than original / high, 0 for those longer than original / low, a line
  // between: one formula instead of three cases, so that nothing is read on the host.
  const double waves = static_cast<double>(o.rope_original) / (2 * std::numbers::pi);
  const at::Tensor kept =
      plain.mul(waves).sub_(o.rope_low).div_(o.rope_high - o.rope_low).clamp_(0, 1);
  return plain.div(o.rope_factor).mul_(kept.neg().add_(1)).add_(plain.mul(kept));
}

const kernels::Turn& RotaryTables::at(int64_t tokens, c10::Device device, c10::ScalarType dtype) {
  const bool there = last_.cos.defined() && last_.cos.size(0) == tokens &&
                     last_.cos.device() == device && last_.cos.scalar_type() == dtype;
  if (there) return last_;
  const auto where = at::TensorOptions().device(device).dtype(dtype);
  const at::Tensor angle =
      at::outer(at::arange(tokens, where), rotary_frequencies(options_, where));
  last_ = {angle.cos(), angle.sin()};
  return last_;
}

}  // namespace braid::nn
