// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/ema.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <utility>

#include "braid/core/error.h"

namespace braid::optim {
namespace {

std::vector<at::Tensor> weights_of(const std::vector<Param>& params) {
  std::vector<at::Tensor> weights;
  for (const Param& param : params) weights.push_back(param.tensor.detach());
  return weights;
}

at::Tensor shadow_of(const at::Tensor& weight) {
  const bool narrow = weight.element_size() < 4;
  return weight.to(narrow ? c10::kFloat : weight.scalar_type(), /*non_blocking=*/false,
                   /*copy=*/true);
}

}  // namespace

Ema::Ema(std::vector<Param> params, double decay, std::optional<c10::ScalarType> seen)
    : params_(std::move(params)), decay_(decay), seen_(seen) {
  if (decay < 0 || decay >= 1)
    throw ConfigError({.what = fmt::format("an EMA decay of {}", decay),
                       .why = "the average keeps this share of itself at each step",
                       .fix = "give a number of at least 0 and below 1, e.g. 0.999"});
  const c10::NoGradGuard no_grad;
  for (const at::Tensor& weight : weights_of(params_)) shadow_.push_back(shadow_of(weight));
}

void Ema::expect_own_weights(const char* doing) const {
  if (!swapped_) return;
  throw InternalError({.what = fmt::format("{} while the averaged weights are in the model", doing),
                       .why = "the average would take itself for the weights",
                       .fix = "call swap() again first"});
}

void Ema::update() {
  expect_own_weights("Ema::update");
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> weights = weights_of(params_);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (seen_) weights[i] = weights[i].to(*seen_);
    weights[i] = weights[i].to(shadow_[i].scalar_type());
  }
  at::_foreach_lerp_(shadow_, weights, 1 - decay_);
}

void Ema::swap() {
  const c10::NoGradGuard no_grad;
  std::vector<at::Tensor> weights = weights_of(params_);
  if (swapped_) {
    at::_foreach_copy_(weights, kept_);
    kept_.clear();
  } else {
    for (const at::Tensor& weight : weights) kept_.push_back(weight.clone());
    at::_foreach_copy_(weights, shadow_);
  }
  swapped_ = !swapped_;
}

State Ema::state() const {
  State state;
  for (size_t i = 0; i < params_.size(); ++i)
    state.set(params_[i].name, shadow_[i], params_[i].piece);
  return state;
}

void Ema::load(const State& state) {
  expect_own_weights("Ema::load");
  const c10::NoGradGuard no_grad;
  for (size_t i = 0; i < params_.size(); ++i) {
    const at::Tensor& from = state.tensor(params_[i].name);
    if (from.sizes() != shadow_[i].sizes())
      throw StorageError({.what = fmt::format("the saved average of {} has {} values, the model {}",
                                              params_[i].name, from.numel(), shadow_[i].numel()),
                          .why = "it was saved for another model",
                          .fix = "resume with the config that wrote it"});
    shadow_[i].copy_(from);
  }
}

}  // namespace braid::optim
