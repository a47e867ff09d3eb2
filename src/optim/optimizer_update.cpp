// SPDX-License-Identifier: BSD-3-Clause
// One update: fused calls over tensors of one kind. That of SGD takes gradients of the dtype that
// is updated: they are cast in tiles.
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sub.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "braid/kernels/adam.h"
#include "optim/optimizer_impl.h"

namespace braid::optim {
namespace {

// Gradients cast at one time: bounds what the casts add to the peak. Smaller ones would leave
// little to each core. Multiples of a vector: the last elements of a call are updated one by one,
// which may round differently.
int64_t cast_at_once(const at::Tensor& target) {
  return target.is_cuda() ? int64_t{64} << 20 : int64_t{16} << 20;
}

// Memory for the casts of one call, used again by the next.
struct CastScratch {
  at::Tensor memory;
  int64_t used = 0;

  at::Tensor like(const at::Tensor& target) {
    if (!memory.defined() || !target.is_contiguous()) return at::empty_like(target);
    used += target.numel();
    return memory.narrow(0, used - target.numel(), target.numel()).view(target.sizes());
  }
};

using BatchKey = std::tuple<c10::ScalarType, c10::ScalarType, c10::DeviceType, int, double>;

BatchKey batch_key(const OptimizerSlot& slot, c10::ScalarType updated) {
  const at::Tensor& t = slot.param.tensor;
  return {t.scalar_type(), updated, t.device().type(), t.device().index(), slot.decay};
}

// The fused kernels walk raw memory: a gradient of another layout than its weight would update the
// wrong elements.
at::Tensor fitted_grad(const at::Tensor& grad, const at::Tensor& target, CastScratch& scratch,
                       bool any_dtype) {
  const bool fits = any_dtype || grad.scalar_type() == target.scalar_type();
  if (fits && grad.strides() == target.strides()) return grad.detach();
  return scratch.like(target).copy_(grad.detach());
}

int64_t most_elements(const std::vector<std::vector<OptimizerPart>>& calls) {
  int64_t most = 0;
  for (const std::vector<OptimizerPart>& parts : calls) {
    int64_t sum = 0;
    for (const OptimizerPart& part : parts) sum += part.size();
    most = std::max(most, sum);
  }
  return most;
}

at::Tensor scalar_on(const at::Tensor& value, const at::Tensor& like, c10::ScalarType dtype) {
  return value.defined() ? value.to(like.device(), dtype) : value;
}

// The kernel of SGD reads a rate on the device in fp32. One of the host is rounded the same way
// there, so that a captured step equals the same step without capture, bit for bit.
double host_rate(double lr, const at::Tensor& target) {
  const bool rounds = target.is_cuda() && target.scalar_type() != c10::kDouble;
  return rounds ? static_cast<double>(static_cast<float>(lr)) : lr;
}

// Kernels over lists of tensors do not count themselves as in-place changes; autograd and
// parallel::Sync look at that count.
void note_change(const OptimizerSlot& slot) {
  slot.target().unsafeGetTensorImpl()->bump_version();
  slot.param.tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace

std::vector<OptimizerBatch> Optimizer::Impl::batches() {
  std::map<BatchKey, OptimizerBatch> groups;
  for (OptimizerSlot& slot : slots) {
    const at::Tensor& grad = slot.param.tensor.grad();
    if (!grad.defined()) continue;
    OptimizerBatch& group = groups[batch_key(slot, updated(slot))];
    group.slots.push_back(&slot);
    group.casts = group.casts || (!adam() && grad.scalar_type() != updated(slot));
  }
  std::vector<OptimizerBatch> result;
  for (auto& [key, group] : groups) result.push_back(std::move(group));
  return result;
}

// All at once, or so many elements together.
std::vector<std::vector<OptimizerPart>> Optimizer::Impl::calls_of(
    const OptimizerBatch& batch) const {
  std::vector<std::vector<OptimizerPart>> calls(1);
  const int64_t most = cast_at_once(batch.slots.front()->target());
  int64_t filled = 0;
  for (OptimizerSlot* slot : batch.slots) {
    const int64_t size = slot->param.tensor.numel();
    const bool flat = slot->target().is_contiguous() && slot->param.tensor.is_contiguous() &&
                      slot->param.tensor.grad().is_contiguous();
    const int64_t step = batch.tiles && flat && !slot->wide && size > most ? most : size;
    for (int64_t begin = 0; begin == 0 || begin < size; begin += std::max<int64_t>(step, 1)) {
      const int64_t count = std::min(step, size - begin);
      if (batch.tiles && filled > 0 && filled + count > most) {
        calls.emplace_back();
        filled = 0;
      }
      filled += count;
      calls.back().push_back({slot, begin, step == size ? 0 : count});
    }
  }
  return calls;
}

OptimizerCall Optimizer::Impl::call_of(const std::vector<OptimizerPart>& parts,
                                       const at::Tensor& memory) const {
  OptimizerCall call;
  CastScratch scratch{memory};
  call.decay = parts.front().slot->decay;
  for (const OptimizerPart& part : parts) {
    const OptimizerSlot& slot = *part.slot;
    call.targets.push_back(part.of(slot.target()));
    call.grads.push_back(
        fitted_grad(part.of(slot.param.tensor.grad()), call.targets.back(), scratch, adam()));
    if (adam()) {
      call.exp_avgs.push_back(part.of(slot.exp_avg));
      call.exp_avg_sqs.push_back(part.of(slot.exp_avg_sq));
      call.steps.push_back(slot.step);
    } else if (options.momentum != 0) {
      call.momenta.push_back(part.of(slot.momentum));
    }
    if (slot.wide) call.weights.push_back(part.of(slot.param.tensor.detach()));
  }
  return call;
}

void Optimizer::Impl::adam_call(const OptimizerCall& c, const Given& given) const {
  kernels::adam({.targets = c.targets,
                 .grads = c.grads,
                 .exp_avgs = c.exp_avgs,
                 .exp_avg_sqs = c.exp_avg_sqs,
                 .weights = c.weights,
                 .steps = c.steps},
                {.lr = given.lr.number(),
                 .beta1 = options.betas[0],
                 .beta2 = options.betas[1],
                 .eps = options.eps,
                 .decay = c.decay,
                 .decoupled = options.name == Algorithm::adamw,
                 .lr_there = given.lr.scalar(),
                 .factor = given.factor,
                 .found_inf = given.found_inf});
}

void Optimizer::Impl::sgd_call(OptimizerCall& c, const Given& given) const {
  const at::Tensor& first = c.targets.front();
  const bool fp64 = first.scalar_type() == c10::kDouble;
  // The kernel divides by a float: its rounding would show in fp64.
  if (fp64 && given.factor.defined()) at::_foreach_mul_(c.grads, given.factor);
  std::optional<at::Tensor> scale, skip;
  if (given.factor.defined() && !fp64) scale = given.factor.reciprocal();
  if (given.found_inf.defined()) skip = given.found_inf;
  const auto call = [&](const auto& lr) {
    at::_fused_sgd_(c.targets, c.grads, c.momenta, c.decay, options.momentum, lr, /*dampening=*/0,
                    options.nesterov, /*maximize=*/false, /*is_first_step=*/false, scale, skip);
  };
  if (given.lr.on_device())
    call(first.is_cuda() ? given.lr.scalar().to(c10::kFloat) : given.lr.scalar());
  else
    call(host_rate(given.lr.number(), first));
  // After a dropped update the same values again.
  if (!c.weights.empty()) at::_foreach_copy_(c.weights, c.targets);
}

void Optimizer::Impl::update(const OptimizerBatch& batch, Given given, const Updated& updated) {
  std::vector<at::Tensor> steps;
  for (OptimizerSlot* slot : batch.slots) {
    start(*slot);
    if (adam()) steps.push_back(slot->step);
  }
  const at::Tensor first = batch.slots.front()->target();
  const bool fp64 = first.scalar_type() == c10::kDouble;
  given.factor = scalar_on(given.factor, first, fp64 ? c10::kDouble : c10::kFloat);
  given.found_inf = scalar_on(given.found_inf, first, c10::kFloat);
  if (adam()) at::_foreach_add_(steps, 1);
  const std::vector<std::vector<OptimizerPart>> calls = calls_of(batch);
  const at::Tensor memory =
      batch.casts ? at::empty({most_elements(calls)}, first.options()) : at::Tensor();
  for (const std::vector<OptimizerPart>& parts : calls) {
    OptimizerCall call = call_of(parts, memory);
    adam() ? adam_call(call, given) : sgd_call(call, given);
    for (const OptimizerPart& part : parts) {
      note_change(*part.slot);
      if (updated && part.is_last()) updated(part.slot->param);
    }
  }
  // A dropped update does not count.
  if (adam() && given.found_inf.defined())
    at::_foreach_sub_(steps, std::vector<at::Tensor>(steps.size(), given.found_inf));
}

}  // namespace braid::optim
