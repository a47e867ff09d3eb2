// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/step.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "braid/core/observe.h"
#include "braid/core/region.h"
#include "braid/memory/stash.h"
#include "train/staged.h"

namespace braid::train {
namespace {

int64_t weight_between(const std::vector<int64_t>& weights, int64_t begin, int64_t end) {
  return std::accumulate(weights.begin() + begin, weights.begin() + end, int64_t{0});
}

int64_t global_samples(const data::Batch& batch) {
  return batch.global_samples > 0 ? batch.global_samples : batch.samples;
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

void Step::enter(const char* phase) const {
  if (share_.phase) share_.phase(phase);
}

double Step::whole_weight(const data::Batch& batch) const {
  if (share_.rounds != nullptr) return share_.rounds->weight();
  return static_cast<double>(weight_between(batch.weights, 0, batch.samples));
}

std::vector<double> Step::shares(const data::Batch& batch) const {
  const int64_t samples = batch.input.size(0);
  const int64_t size = options_.micro_batch > 0 ? options_.micro_batch : samples;
  const auto all = static_cast<double>(weight_between(batch.weights, 0, batch.samples));
  std::vector<double> shares;
  for (int64_t begin = 0; begin < samples; begin += size) {
    const int64_t real = std::clamp<int64_t>(batch.samples - begin, 0, size);
    const int64_t weight = weight_between(batch.weights, begin, begin + real);
    shares.push_back(weight == 0 ? 0 : static_cast<double>(weight) / all);
  }
  return shares;
}

// The batch in micro-batches, as many on every rank. A rank whose samples have run out still makes
// the pass, on padding, if others may wait for it within: its loss counts nothing.
std::vector<Micro> Step::micros_of(const data::Batch& batch, nn::Pass pass,
                                   AllExtras& extras) const {
  const int64_t samples = batch.input.size(0);  // with padding: as many on every rank
  const int64_t size = options_.micro_batch > 0 ? options_.micro_batch : samples;
  const int64_t filled = (samples + size - 1) / size;
  pass.first_sample += batch.first;
  pass.blocks = share_.blocks;
  pass.segments = pass.training ? share_.segments : nullptr;
  std::vector<Micro> micros;
  for (int64_t i = 0; i < (share_.staged != nullptr ? share_.staged->micros(filled) : filled);
       ++i) {
    const int64_t begin = std::min(i * size, samples - 1);
    const int64_t real = std::clamp<int64_t>(batch.samples - i * size, 0, size);
    const int64_t weight = weight_between(batch.weights, begin, begin + real);
    if (weight == 0 && share_.rounds == nullptr && share_.staged == nullptr) continue;
    const int64_t rows = std::max<int64_t>(real, 1);
    // Ranks exchange tokens for experts: all of them run as many samples, padding too.
    const int64_t run = options_.experts ? std::min(size, samples - begin) : rows;
    Micro& micro = micros.emplace_back();
    micro.input = batch.input.narrow(0, begin, run);
    micro.target = batch.target.narrow(0, begin, rows);
    micro.weight = weight;
    micro.pass = pass;
    micro.pass.first_sample += begin;
    aim(micro);
    if (!options_.experts) continue;
    micro.pass.extras = &extras.emplace_back();
    micro.pass.extras->samples = real;
    micro.pass.extras->weight = static_cast<double>(real) /
                                static_cast<double>(std::max<int64_t>(global_samples(batch), 1));
    if (scaler_ != nullptr) micro.pass.extras->scale = scaler_->scale();
  }
  return micros;
}

// Where the model makes losses of its scores by itself, it must know what to compare them with.
// Samples of the pass without a target are padding.
void Step::aim(Micro& micro) const {
  if (options_.loss != nn::Loss::cross_entropy || !micro.pass.training || !model_.gives_losses())
    return;
  const int64_t missing = micro.input.size(0) - micro.target.size(0);
  const at::Tensor& target = micro.target;
  micro.pass.aim.target = target;
  if (missing > 0) {
    std::vector<int64_t> sizes = target.sizes().vec();
    sizes[0] = missing;
    micro.pass.aim.target =
        at::cat({target, at::full(sizes, nn::ignored_target, target.options())});
  }
  if (scaler_ != nullptr) micro.pass.aim.scale = scaler_->scale();
}

// A mean of means weighted by what each counts: the loss depends neither on the size of a
// micro-batch nor on the number of ranks.
at::Tensor Step::loss_of(const at::Tensor& output, const Micro& micro,
                         const data::Batch& batch) const {
  const ModuleScope here("loss");
  if (micro.weight == 0) return output.sum().mul(0);
  const at::Tensor target = model_.local_target(micro.target);
  const int64_t rows = target.size(0);
  at::Tensor loss;
  if (micro.pass.aim.target.defined())
    loss = nn::mean_of_losses(output, target, model_.loss_share());
  else
    loss = nn::loss(options_.loss, output.size(0) == rows ? output : output.narrow(0, 0, rows),
                    target, model_.loss_share());
  const double all = whole_weight(batch);  // known while the forward pass ran
  const auto mine = static_cast<double>(micro.weight);
  return mine == all ? loss : loss.mul(mine / all);
}

at::Tensor Step::scaled(const at::Tensor& loss) const {
  return scaler_ != nullptr ? loss.mul(scaler_->scale()) : loss;
}

at::Tensor Step::one_after_the_other(const std::vector<Micro>& micros,
                                     const data::Batch& batch) const {
  at::Tensor sum;
  for (const Micro& micro : micros) {
    if (share_.sync != nullptr) share_.sync->hold(&micro != &micros.back());
    enter("forward");
    std::optional<Region> region(std::in_place, regions::forward);
    std::optional<memory::SavedScope> kept(std::in_place, share_.stash);
    const at::Tensor output = nn::run(model_, micro.input, micro.pass);
    kept.reset();  // what the loss keeps is wanted at once
    const at::Tensor loss = loss_of(output, micro, batch);
    enter("backward");
    region.emplace(regions::backward);
    scaled(loss).backward();
    region.reset();
    if (share_.host == nullptr) mark_gradients(optimizer_.params());
    sum = sum.defined() ? sum.add(loss.detach()) : loss.detach();
  }
  return sum;
}

// What ranks without the last stage say is 0.
at::Tensor Step::in_stages(const std::vector<Micro>& micros, const data::Batch& batch) const {
  at::Tensor sum = at::zeros({}, at::TensorOptions(c10::kDouble).device(micros[0].input.device()));
  enter("forward and backward");
  share_.staged->run(micros, {.loss =
                                  [&](const at::Tensor& output, const Micro& micro) {
                                    const at::Tensor loss = loss_of(output, micro, batch);
                                    sum.add_(loss.detach());
                                    return scaled(loss);
                                  },
                              .before_backward =
                                  [&](bool last) {
                                    if (share_.sync != nullptr) share_.sync->hold(!last);
                                  },
                              .stash = share_.stash});
  if (share_.host == nullptr) mark_gradients(optimizer_.params());
  return sum;
}

StepResult Step::gradients(const data::Batch& batch, nn::Pass pass) {
  if (share_.host == nullptr) {
    mark_parameters(optimizer_.params());
  } else {
    share_.host->mark_memory();
    share_.host->begin(pass.step);
  }
  mark(batch.input, MemoryKind::input);
  mark(batch.target, MemoryKind::input);
  AllExtras extras;
  const std::vector<Micro> micros = micros_of(batch, pass, extras);
  StepResult result;
  result.loss =
      share_.staged != nullptr ? in_stages(micros, batch) : one_after_the_other(micros, batch);
  result.weight = static_cast<int64_t>(whole_weight(batch));
  if (options_.experts) sum_routing(extras, batch, result);
  if (share_.rounds == nullptr && share_.sync == nullptr) return result;
  enter("sum of gradients");
  comm::Pending sum = share_.losses.all_reduce(result.loss);
  if (share_.sync != nullptr) share_.sync->finish();
  sum.wait();
  return result;
}

// Losses of routers are the same on all ranks of context; tokens of experts are counted where they
// are.
void Step::sum_routing(const AllExtras& extras, const data::Batch& batch,
                       StepResult& result) const {
  const at::TensorOptions there = at::TensorOptions(c10::kDouble).device(batch.input.device());
  result.aux_loss = at::zeros({}, there);
  result.max_load = at::zeros({}, there);
  std::map<std::string, at::Tensor> loads;
  for (const nn::Extras& micro : extras) {
    for (const auto& [layer, loss] : micro.losses) result.aux_loss.add_(loss);
    for (const auto& [layer, load] : micro.loads) {
      at::Tensor& sum = loads.try_emplace(layer, at::zeros(load.sizes(), there)).first->second;
      if (micro.weight > 0) sum.add_(load);  // else padding: this rank has a part in the sums below
    }
  }
  result.aux_loss.div_(static_cast<double>(std::max<int64_t>(global_samples(batch), 1)));
  share_.losses.all_reduce(result.aux_loss).wait();
  for (const auto& [layer, load] : loads) {
    share_.tokens.all_reduce(load).wait();
    const at::Tensor chosen = load.narrow(0, 0, load.size(0) - 1);  // the last one: left out
    result.max_load.copy_(result.max_load.maximum(chosen.amax().div(chosen.sum().clamp_min(1))));
  }
  share_.losses.all_reduce(result.max_load, comm::Op::max).wait();
}

// Updates on the host read the scalars there, and may come one step late.
void Step::apply(const optim::LearningRate& lr, const parallel::HostUpdate& given, int64_t step) {
  if (share_.host == nullptr) {
    optimizer_.step(lr, given.found_inf, given.inverse);
    if (share_.sync != nullptr) share_.sync->publish();
    return;
  }
  const auto on_host = [](const at::Tensor& x) { return x.defined() ? x.to(c10::kCPU) : x; };
  share_.host->update(
      {.lr = lr.number(),
       .found_inf = on_host(given.found_inf),
       .inverse = on_host(given.inverse),
       .updated = {}},
      [this](const parallel::HostUpdate& late) {
        optimizer_.step(late.lr, late.found_inf, late.inverse, late.updated);
      },
      step);
}

void Step::update(const optim::LearningRate& lr, int64_t step, StepResult& result) {
  const ModuleScope here("optimizer");
  const Region region(regions::optimizer);
  enter("update");
  const std::vector<Param>& params = optimizer_.params();
  const comm::Group& owners = share_.owners;
  at::Tensor inverse;
  if (scaler_ != nullptr) {
    result.scale = scaler_->scale().clone();
    result.found_inf = scaler_->check(params, owners);
    inverse = scaler_->inverse();
  }
  if (options_.clip > 0) {
    at::Tensor norm = optim::grad_norm(params, owners);
    if (inverse.defined()) norm = norm.mul(inverse.to(norm.options()));
    const at::Tensor factor = optim::clip_factor(norm, options_.clip);
    inverse = inverse.defined() ? factor.mul(inverse.to(norm.options())) : factor;
    result.grad_norm = norm;
  }
  apply(lr, {.lr = 0, .found_inf = result.found_inf, .inverse = inverse, .updated = {}}, step);
  if (scaler_ != nullptr) scaler_->update(result.found_inf);
}

StepResult Step::run(const data::Batch& batch, nn::Pass pass, const optim::LearningRate& lr) {
  StepResult result = gradients(batch, pass);
  update(lr, pass.step, result);
  optimizer_.zero_grad();
  return result;
}

}  // namespace braid::train
