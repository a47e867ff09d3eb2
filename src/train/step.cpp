// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/step.h"

#include <algorithm>
#include <numeric>
#include <utility>

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
           optim::LossScaler* scaler, StepShare share)
    : model_(model),
      optimizer_(optimizer),
      options_(options),
      scaler_(scaler),
      share_(std::move(share)) {}

// Loss of a few samples, and its backward pass. A rank whose samples have run out still makes the
// pass, on padding, if others may wait for it within: its loss counts nothing.
at::Tensor Step::pass_over(const data::Batch& batch, int64_t begin, int64_t rows,
                           nn::Pass pass) const {
  const int64_t real = std::clamp<int64_t>(batch.samples - begin, 0, rows);
  const int64_t weight = weight_between(batch.weights, begin, begin + real);
  if (weight == 0 && share_.sync == nullptr) return {};
  const int64_t run = std::max<int64_t>(real, 1);
  pass.first_sample += batch.first + begin;
  pass.blocks = share_.blocks;
  enter("forward");
  const at::Tensor output = nn::run(model_, batch.input.narrow(0, begin, run), pass);
  at::Tensor loss = weight > 0 ? loss_of(output, batch.target.narrow(0, begin, run)) : output.sum();
  // A mean of means weighted by what each counts: the loss depends neither on the size of a
  // micro-batch nor on the number of ranks.
  const double all = whole_weight(batch);
  const auto mine = static_cast<double>(weight);
  if (mine != all) loss = loss.mul(all > 0 ? mine / all : 0.0);
  enter("backward");
  (scaler_ != nullptr ? loss.mul(scaler_->scale()) : loss).backward();
  mark_gradients(optimizer_.params());
  return loss.detach();
}

void Step::enter(const char* phase) const {
  if (share_.phase) share_.phase(phase);
}

double Step::whole_weight(const data::Batch& batch) const {
  if (share_.rounds != nullptr) return share_.rounds->weight();
  return static_cast<double>(weight_between(batch.weights, 0, batch.samples));
}

StepResult Step::gradients(const data::Batch& batch, nn::Pass pass) {
  const int64_t samples = batch.input.size(0);  // with padding: as many on every rank
  const int64_t micro = options_.micro_batch > 0 ? options_.micro_batch : samples;
  mark_parameters(optimizer_.params());
  mark(batch.input, MemoryKind::input);
  mark(batch.target, MemoryKind::input);
  StepResult result;
  for (int64_t begin = 0; begin < samples; begin += micro) {
    const int64_t end = std::min(begin + micro, samples);
    if (share_.sync != nullptr) share_.sync->hold(end < samples);
    const at::Tensor loss = pass_over(batch, begin, end - begin, pass);
    if (!loss.defined()) continue;  // no target counts
    result.loss = result.loss.defined() ? result.loss.add(loss) : loss;
  }
  result.weight = static_cast<int64_t>(whole_weight(batch));
  if (share_.sync == nullptr) return result;
  enter("sum of gradients");
  comm::Pending sum = share_.batch.all_reduce(result.loss);
  share_.sync->finish();
  sum.wait();
  return result;
}

at::Tensor Step::loss_of(const at::Tensor& output, const at::Tensor& target) const {
  const ModuleScope here("loss");
  return nn::loss(options_.loss, output, target);
}

void Step::update(double lr, StepResult& result) {
  const ModuleScope here("optimizer");
  enter("update");
  const std::vector<Param>& params = optimizer_.params();
  const comm::Group owners = share_.sync != nullptr ? share_.sync->owners() : comm::Group();
  at::Tensor inverse;
  if (scaler_ != nullptr) {
    result.scale = scaler_->scale().clone();
    result.found_inf = scaler_->check(params, owners);
    inverse = scaler_->inverse();
  }
  if (options_.clip > 0) {
    if (inverse.defined()) optim::scale_grads(params, inverse);
    inverse = at::Tensor();
    result.grad_norm = optim::clip_grad_norm(params, options_.clip, owners);
  }
  optimizer_.step(lr, result.found_inf, inverse);
  if (share_.sync != nullptr) share_.sync->publish();
  if (scaler_ != nullptr) scaler_->update(result.found_inf);
}

StepResult Step::run(const data::Batch& batch, nn::Pass pass, double lr) {
  StepResult result = gradients(batch, pass);
  update(lr, result);
  optimizer_.zero_grad();
  return result;
}

}  // namespace braid::train
