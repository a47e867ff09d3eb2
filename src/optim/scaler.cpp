// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "optim/gradients.h"

namespace braid::optim {

LossScaler::LossScaler(ScalerOptions options, c10::Device device)
    : options_(options),
      scale_(at::full({}, options_.initial, at::TensorOptions(c10::kFloat).device(device))),
      growth_(at::zeros({}, at::TensorOptions(c10::kInt).device(device))) {}

at::Tensor LossScaler::inverse() const {
  const c10::NoGradGuard no_grad;
  return scale_.reciprocal();
}

at::Tensor LossScaler::check(const std::vector<Param>& params, const comm::Group& owners) const {
  const c10::NoGradGuard no_grad;
  at::Tensor found = at::zeros({}, scale_.options());
  for (const auto& grads : grads_by_kind(params)) {
    const at::TensorOptions there = found.options().device(grads.front().device());
    const bool here = grads.front().device() == found.device();  // else they lie on the host
    at::Tensor bad = here ? found : at::zeros({}, there);
    const at::Tensor one = at::ones({}, there);  // multiplies by 1: bits stay
    at::_amp_foreach_non_finite_check_and_unscale_(grads, bad, one);
    if (!here) found.add_(bad.to(found.device())).clamp_max_(1);
  }
  if (owners.size() > 1) owners.all_reduce(found, comm::Op::max).wait();
  return found;
}

void LossScaler::update(const at::Tensor& found_inf) {
  const c10::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_, found_inf, options_.growth, options_.backoff,
                         options_.interval);
}

State LossScaler::state() const {
  State state;
  state.tensors = {{"scale", scale_}, {"growth", growth_}};
  return state;
}

void LossScaler::load(const State& state) {
  scale_.copy_(state.tensor("scale"));
  growth_.copy_(state.tensor("growth"));
}

}  // namespace braid::optim
