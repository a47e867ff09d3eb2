// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/optimizer.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/precision.h"

namespace braid::optim {

// What the optimizer keeps of one parameter; the tensors are made at its first update.
struct OptimizerSlot {
  Param param;
  double decay = 0;
  bool wide = false;  // updates `master` instead of the parameter
  bool started = false;
  at::Tensor master, exp_avg, exp_avg_sq, step, momentum;

  at::Tensor target() const { return wide ? master : param.tensor.detach(); }
};

// What one fused call takes: tensors of one dtype, device and weight decay.
struct OptimizerBatch {
  std::vector<OptimizerSlot*> slots;
  std::vector<at::Tensor> targets, grads, exp_avgs, exp_avg_sqs, steps, momenta;
};

namespace {

// Gradients cast for master copies at one time: bounds what the casts add to the peak.
constexpr int64_t cast_elements_at_once = int64_t{64} << 20;

using BatchKey = std::tuple<c10::ScalarType, c10::ScalarType, c10::DeviceType, int, double>;

BatchKey batch_key(const OptimizerSlot& slot, c10::ScalarType updated) {
  const at::Tensor& t = slot.param.tensor;
  return {t.scalar_type(), updated, t.device().type(), t.device().index(), slot.decay};
}

// The fused kernels walk raw memory: a gradient of another layout than its weight would update the
// wrong elements.
at::Tensor fitted_grad(const at::Tensor& grad, const at::Tensor& target) {
  if (grad.scalar_type() == target.scalar_type() && grad.strides() == target.strides())
    return grad.detach();
  return at::empty_like(target).copy_(grad.detach());
}

std::optional<at::Tensor> scalar_on(const at::Tensor& value, const at::Tensor& like) {
  if (!value.defined()) return std::nullopt;
  return value.to(like.device(), c10::kFloat);
}

const char* algorithm_name(Algorithm algorithm) {
  return algorithm == Algorithm::sgd ? "sgd" : algorithm == Algorithm::adam ? "adam" : "adamw";
}

void check_options(const OptimizerOptions& o) {
  if (o.betas.size() != 2 || o.betas[0] < 0 || o.betas[0] >= 1 || o.betas[1] < 0 || o.betas[1] >= 1)
    throw ConfigError({.what = fmt::format("optimizer.betas = [{}]", fmt::join(o.betas, ", ")),
                       .why = "Adam needs two numbers of at least 0 and below 1",
                       .fix = "for example betas: [0.9, 0.999]"});
  if (o.nesterov && o.momentum <= 0)
    throw ConfigError({.what = "optimizer.nesterov = true with optimizer.momentum = 0",
                       .why = "there is no momentum to look ahead by",
                       .fix = "set optimizer.momentum, e.g. 0.9, or nesterov=false"});
}

void check_dense(const Param& param) {
  if (param.tensor.is_non_overlapping_and_dense()) return;
  throw InternalError({.what = fmt::format("parameter {} is a view with gaps", param.name),
                       .why = "the fused update walks the memory of a parameter from end to end",
                       .fix = "register a contiguous tensor as the parameter"});
}

StorageError foreign_entry(const std::string& entry, const std::string& why) {
  return StorageError(
      {.what = fmt::format("the saved optimizer state has \"{}\"", entry),
       .why = why,
       .fix = "resume with the config that wrote it, or start anew without --resume"});
}

}  // namespace

struct Optimizer::Impl {
  std::vector<Param> params;
  OptimizerOptions options;
  c10::ScalarType master;
  std::vector<OptimizerSlot> slots;

  bool adam() const { return options.name != Algorithm::sgd; }
  c10::ScalarType updated(const OptimizerSlot& slot) const {
    return slot.wide ? master : slot.param.tensor.scalar_type();
  }
  std::vector<std::pair<std::string, at::Tensor*>> parts(OptimizerSlot& slot) const;
  void start(OptimizerSlot& slot) const;
  void expect_own(const State& state) const;
  std::vector<OptimizerBatch> batches();
  void fill(OptimizerBatch& batch) const;
  void update(OptimizerBatch& batch, double lr, const at::Tensor& found_inf,
              const at::Tensor& inv_scale);
  void fused(OptimizerBatch& batch, double lr, const std::optional<at::Tensor>& scale,
             const std::optional<at::Tensor>& found_inf) const;
};

// The tensors of a slot under the names they are saved with.
std::vector<std::pair<std::string, at::Tensor*>> Optimizer::Impl::parts(OptimizerSlot& slot) const {
  std::vector<std::pair<std::string, at::Tensor*>> result;
  const auto add = [&](const char* kind, at::Tensor& tensor) {
    result.emplace_back(fmt::format("{}/{}", slot.param.name, kind), &tensor);
  };
  if (slot.wide) add("master", slot.master);
  if (adam()) {
    add("exp_avg", slot.exp_avg);
    add("exp_avg_sq", slot.exp_avg_sq);
    add("step", slot.step);
  } else if (options.momentum != 0) {
    add("momentum", slot.momentum);
  }
  return result;
}

void Optimizer::Impl::start(OptimizerSlot& slot) const {
  if (slot.started) return;
  slot.started = true;
  if (slot.wide) {
    slot.master = slot.param.tensor.detach().to(master);
    mark(slot.master, MemoryKind::master_weight, module_of(slot.param));
  }
  const at::Tensor target = slot.target();
  if (adam()) {
    slot.exp_avg = at::zeros_like(target);
    slot.exp_avg_sq = at::zeros_like(target);
    slot.step = at::zeros({}, target.options().dtype(c10::kFloat));
  } else if (options.momentum != 0) {
    slot.momentum = at::zeros_like(target);  // the first step then gives momentum = gradient
  }
  for (const at::Tensor& state : {slot.exp_avg, slot.exp_avg_sq, slot.step, slot.momentum})
    mark(state, MemoryKind::optimizer_state, module_of(slot.param));
}

std::vector<OptimizerBatch> Optimizer::Impl::batches() {
  std::map<BatchKey, std::vector<OptimizerBatch>> groups;
  std::map<BatchKey, int64_t> elements;
  for (OptimizerSlot& slot : slots) {
    if (!slot.param.tensor.grad().defined()) continue;
    const BatchKey key = batch_key(slot, updated(slot));
    std::vector<OptimizerBatch>& group = groups[key];
    const int64_t size = slot.param.tensor.numel();
    if (group.empty() || (slot.wide && elements[key] + size > cast_elements_at_once)) {
      group.emplace_back();
      elements[key] = 0;
    }
    elements[key] += size;
    group.back().slots.push_back(&slot);
  }
  std::vector<OptimizerBatch> result;
  for (auto& [key, group] : groups)
    for (OptimizerBatch& batch : group) result.push_back(std::move(batch));
  return result;
}

void Optimizer::Impl::fill(OptimizerBatch& batch) const {
  for (OptimizerSlot* slot : batch.slots) {
    start(*slot);
    batch.targets.push_back(slot->target());
    batch.grads.push_back(fitted_grad(slot->param.tensor.grad(), batch.targets.back()));
    if (adam()) {
      batch.exp_avgs.push_back(slot->exp_avg);
      batch.exp_avg_sqs.push_back(slot->exp_avg_sq);
      batch.steps.push_back(slot->step);
    } else if (options.momentum != 0) {
      batch.momenta.push_back(slot->momentum);
    }
  }
}

void Optimizer::Impl::fused(OptimizerBatch& b, double lr, const std::optional<at::Tensor>& scale,
                            const std::optional<at::Tensor>& found_inf) const {
  const OptimizerOptions& o = options;
  const double decay = b.slots.front()->decay;
  if (o.name == Algorithm::sgd) {
    at::_fused_sgd_(b.targets, b.grads, b.momenta, decay, o.momentum, lr, /*dampening=*/0,
                    o.nesterov, /*maximize=*/false, /*is_first_step=*/false, scale, found_inf);
    return;
  }
  at::_foreach_add_(b.steps, 1);
  if (o.name == Algorithm::adam)
    at::_fused_adam_(b.targets, b.grads, b.exp_avgs, b.exp_avg_sqs, {}, b.steps, lr, o.betas[0],
                     o.betas[1], decay, o.eps, /*amsgrad=*/false, /*maximize=*/false, scale,
                     found_inf);
  else
    at::_fused_adamw_(b.targets, b.grads, b.exp_avgs, b.exp_avg_sqs, {}, b.steps, lr, o.betas[0],
                      o.betas[1], decay, o.eps, /*amsgrad=*/false, /*maximize=*/false, scale,
                      found_inf);
  // A dropped update does not count.
  if (found_inf) at::_foreach_sub_(b.steps, std::vector<at::Tensor>(b.steps.size(), *found_inf));
}

void Optimizer::Impl::update(OptimizerBatch& batch, double lr, const at::Tensor& found_inf,
                             const at::Tensor& inv_scale) {
  fill(batch);
  const at::Tensor& first = batch.targets.front();
  std::optional<at::Tensor> scale = scalar_on(inv_scale, first);
  if (scale && first.scalar_type() == c10::kDouble) {
    // The kernels divide by a float: its rounding would show in fp64.
    at::_foreach_mul_(batch.grads, inv_scale.to(first.device(), c10::kDouble));
    scale.reset();
  } else if (scale) {
    scale = scale->reciprocal();
  }
  fused(batch, lr, scale, scalar_on(found_inf, first));
  if (!batch.slots.front()->wide) return;
  std::vector<at::Tensor> weights;
  for (OptimizerSlot* slot : batch.slots) weights.push_back(slot->param.tensor.detach());
  at::_foreach_copy_(weights, batch.targets);  // after a dropped update the same values again
}

Optimizer::Optimizer(std::vector<Param> params, OptimizerOptions options, c10::ScalarType master)
    : impl_(std::make_unique<Impl>()) {
  check_options(options);
  for (const Param& param : params) {
    check_dense(param);
    const at::Tensor& t = param.tensor;
    const bool decays = !options.decay_matrices_only || param.dims() >= 2;
    OptimizerSlot slot;
    slot.param = param;
    slot.decay = decays ? options.weight_decay : 0.0;
    slot.wide = t.element_size() < static_cast<int64_t>(c10::elementSize(master));
    impl_->slots.push_back(std::move(slot));
  }
  impl_->params = std::move(params);
  impl_->options = std::move(options);
  impl_->master = master;
}

Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::step(double lr, const at::Tensor& found_inf, const at::Tensor& inv_scale) {
  const c10::NoGradGuard no_grad;
  for (OptimizerBatch& batch : impl_->batches()) impl_->update(batch, lr, found_inf, inv_scale);
}

void Optimizer::step() { step(impl_->options.lr); }

void Optimizer::zero_grad() {
  for (const Param& param : impl_->params) param.tensor.mutable_grad().reset();
}

const OptimizerOptions& Optimizer::options() const { return impl_->options; }
const std::vector<Param>& Optimizer::params() const { return impl_->params; }

State Optimizer::state() const {
  State state;
  state.values["algorithm"] = algorithm_name(impl_->options.name);
  for (OptimizerSlot& slot : impl_->slots) {
    if (!slot.started) continue;
    for (const auto& [name, tensor] : impl_->parts(slot)) {
      if (slot.param.is_whole() || tensor != &slot.step)
        state.set(name, *tensor, slot.param.piece);
      else
        state.set(name, tensor->view({1}), Piece{.whole = {1}});
    }
  }
  return state;
}

void Optimizer::Impl::expect_own(const State& state) const {
  const std::string& saved = state.text("algorithm");
  const char* mine = algorithm_name(options.name);
  if (saved != mine)
    throw foreign_entry("algorithm = " + saved, fmt::format("this run uses {}", mine));
}

State Optimizer::prepare(const State& saved) {
  const c10::NoGradGuard no_grad;
  impl_->expect_own(saved);
  for (OptimizerSlot& slot : impl_->slots) {
    const auto parts = impl_->parts(slot);
    slot.started = false;
    // A master copy can be made from the weights; what Adam and momentum remember cannot.
    if (parts.empty() || !saved.tensors.contains(parts.back().first)) continue;
    impl_->start(slot);
  }
  return state();
}

void Optimizer::load(const State& state) {
  const c10::NoGradGuard no_grad;
  impl_->expect_own(state);
  std::map<std::string, at::Tensor> rest = state.tensors;
  for (OptimizerSlot& slot : impl_->slots) {
    slot.started = false;
    const auto parts = impl_->parts(slot);
    if (parts.empty() || !state.tensors.contains(parts.front().first)) continue;
    impl_->start(slot);
    for (const auto& [name, tensor] : parts) {
      const at::Tensor& from = state.tensor(name);
      if (from.numel() != tensor->numel() || from.scalar_type() != tensor->scalar_type())
        throw foreign_entry(name, fmt::format("it holds {} values of {}, this run needs {} of {}",
                                              from.numel(), dtype_name(from.scalar_type()),
                                              tensor->numel(), dtype_name(tensor->scalar_type())));
      tensor->copy_(from.view(tensor->sizes()));
      rest.erase(name);
    }
  }
  if (!rest.empty())
    throw foreign_entry(rest.begin()->first, "no parameter of this model and optimizer has that");
}

}  // namespace braid::optim
