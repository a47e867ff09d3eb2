// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/step.h"

#include <algorithm>
#include <numeric>

#include "braid/core/observe.h"

namespace braid::train {
namespace {

int64_t weight_between(const std::vector<int64_t>& weights, int64_t begin, int64_t end) {
  return std::accumulate(weights.begin() + begin, weights.begin() + end, int64_t{0});
}

// What the instruments cannot see by themselves.
void mark_parameters(const std::vector<Param>& params) {
  if (observer() == nullptr) return;
  for (const Param& param : params) mark(param.tensor, MemoryKind::parameter, module_of(param));
}

void mark_gradients(const std::vector<Param>& params) {
  if (observer() == nullptr) return;
  for (const Param& param : params)
    mark(param.tensor.grad(), MemoryKind::gradient, module_of(param));
}

}  // namespace

Step::Step(nn::Model& model, optim::Optimizer& optimizer, StepOptions options,
           optim::LossScaler* scaler)
    : model_(model), optimizer_(optimizer), options_(options), scaler_(scaler) {}

StepResult Step::gradients(const data::Batch& batch, nn::Pass pass) {
  const int64_t samples = batch.samples;  // padding stands behind them
  const int64_t micro = options_.micro_batch > 0 ? options_.micro_batch : samples;
  const int64_t first = pass.first_sample;
  mark_parameters(optimizer_.params());
  mark(batch.input, MemoryKind::input);
  mark(batch.target, MemoryKind::input);
  StepResult result;
  result.weight = weight_between(batch.weights, 0, samples);
  for (int64_t begin = 0; begin < samples; begin += micro) {
    const int64_t end = std::min(begin + micro, samples);
    const int64_t weight = weight_between(batch.weights, begin, end);
    if (weight == 0) continue;  // no target counts
    pass.first_sample = first + begin;
    const at::Tensor output = model_.forward(batch.input.narrow(0, begin, end - begin), pass);
    at::Tensor loss = loss_of(output, batch.target.narrow(0, begin, end - begin));
    // A mean of means weighted by what each counts: the loss does not depend on the size of a
    // micro-batch.
    if (weight != result.weight)
      loss = loss.mul(static_cast<double>(weight) / static_cast<double>(result.weight));
    (scaler_ != nullptr ? loss.mul(scaler_->scale()) : loss).backward();
    mark_gradients(optimizer_.params());
    result.loss = result.loss.defined() ? result.loss.add(loss.detach()) : loss.detach();
  }
  return result;
}

at::Tensor Step::loss_of(const at::Tensor& output, const at::Tensor& target) const {
  const ModuleScope here("loss");
  return nn::loss(options_.loss, output, target);
}

void Step::update(double lr, StepResult& result) {
  const ModuleScope here("optimizer");
  const std::vector<Param>& params = optimizer_.params();
  at::Tensor inverse;
  if (scaler_ != nullptr) {
    result.scale = scaler_->scale().clone();
    result.found_inf = scaler_->check(params);
    inverse = scaler_->inverse();
  }
  if (options_.clip > 0) {
    if (inverse.defined()) optim::scale_grads(params, inverse);
    inverse = at::Tensor();
    result.grad_norm = optim::clip_grad_norm(params, options_.clip);
  }
  optimizer_.step(lr, result.found_inf, inverse);
  if (scaler_ != nullptr) scaler_->update(result.found_inf);
}

StepResult Step::run(const data::Batch& batch, nn::Pass pass, double lr) {
  StepResult result = gradients(batch, pass);
  update(lr, result);
  optimizer_.zero_grad();
  return result;
}

}  // namespace braid::train
