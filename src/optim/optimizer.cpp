// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/optimizer.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/precision.h"
#include "optim/optimizer_impl.h"

namespace braid::optim {
namespace {

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
       .fix = "resume with the config that wrote it, or start again without --resume"});
}

}  // namespace

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

void Optimizer::step(const LearningRate& lr, const at::Tensor& found_inf, const at::Tensor& factor,
                     const Updated& updated) {
  const c10::NoGradGuard no_grad;
  for (OptimizerBatch& batch : impl_->batches()) {
    batch.tiles = batch.casts || (updated && !batch.slots.front()->target().is_cuda());
    impl_->update(batch, {lr, found_inf, factor}, updated);
  }
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
