// SPDX-License-Identifier: BSD-3-Clause
// Updates, now or one step late, and what is saved of one that waits.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <utility>

#include "braid/core/observe.h"
#include "parallel/host_impl.h"

namespace braid::parallel {
namespace {

constexpr const char* late_lr = "delayed_lr";
constexpr const char* late_found = "delayed_found_inf";
constexpr const char* late_inverse = "delayed_inverse";

void put_scalar(State& state, const char* name, const at::Tensor& value) {
  if (value.defined()) state.set(name, value.item<double>());
}

at::Tensor scalar_from(const State& state, const char* name) {
  if (!state.values.contains(name)) return {};
  return at::full({}, state.number(name), at::TensorOptions(c10::kDouble));
}

}  // namespace

void HostParams::Impl::hand_out(size_t from) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].trained) continue;
    at::Tensor& grad = params[i].tensor.mutable_grad();
    grad = slots[i].came[from] ? slots[i].grads[from] : at::Tensor();
  }
}

// With an instrument the update runs here: what it takes is then counted, and in the same order
// each time. Its result is published as late as ever.
void HostParams::Impl::begin(int64_t step) {
  if (!waiting || running) return;
  hand_out(waiting->set);
  const auto work = [this] { waiting->apply(waiting->update); };
  running = true;
  if (late(step) && observer() == nullptr) return worker.start(work);
  work();
  if (late(step)) return;
  join();
  publish();
}

void HostParams::Impl::join() {
  if (!running) return;
  worker.wait();
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].trained) continue;
    slots[i].updated = slots[i].updated || slots[i].came[waiting->set];
    params[i].tensor.mutable_grad().reset();
  }
  waiting.reset();
  running = false;
}

// An optimizer goes through parameters in an order of its own.
void HostParams::Impl::send_early(const Param& param) {
  const auto found = std::find_if(params.begin(), params.end(), [&](const Param& mine) {
    return mine.tensor.is_same(param.tensor);
  });
  if (found == params.end()) return;
  const auto index = static_cast<size_t>(found - params.begin());
  if (!slots[index].trained) return;
  send(index);
  slots[index].sent = true;
}

void HostParams::Impl::update(const HostUpdate& update, const HostApply& apply, int64_t step) {
  if (late(step)) {
    waiting = Waiting{update, apply, set};
    set = 1 - set;
    for (HostSlot& slot : slots) slot.came[set] = false;
  } else {
    HostUpdate overlapped = update;
    overlapped.updated = [this](const Param& param) { send_early(param); };
    apply(overlapped);
    for (HostSlot& slot : slots) slot.updated = slot.updated || slot.came[set];
  }
  publish();
}

State HostParams::Impl::state() const {
  State state;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Param& param = params[i];
    if (slots[i].trained && slots[i].wide && slots[i].updated)
      state.set(param.name + "/master", param.tensor.detach(), param.piece);
    if (waiting && slots[i].came[waiting->set])
      state.set(param.name + "/delayed", slots[i].grads[waiting->set], param.piece);
  }
  if (!waiting) return state;
  state.set(late_lr, waiting->update.lr);
  put_scalar(state, late_found, waiting->update.found_inf);
  put_scalar(state, late_inverse, waiting->update.inverse);
  return state;
}

State HostParams::Impl::prepare(const State& saved, const HostApply& apply) {
  const at::NoGradGuard no_grad;
  State wanted;
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::string master = params[i].name + "/master";
    slots[i].updated = slots[i].trained && slots[i].wide && saved.tensors.contains(master);
    if (slots[i].updated) wanted.set(master, params[i].tensor.detach(), params[i].piece);
  }
  take_waiting(saved, apply, wanted);
  return wanted;
}

void HostParams::Impl::take_waiting(const State& saved, const HostApply& apply, State& wanted) {
  waiting.reset();
  for (HostSlot& slot : slots) slot.came = {};
  set = 0;
  if (!saved.values.contains(late_lr)) return;
  waiting = Waiting{.update = {.lr = saved.number(late_lr),
                               .found_inf = scalar_from(saved, late_found),
                               .inverse = scalar_from(saved, late_inverse)},
                    .apply = apply,
                    .set = 0};
  for (size_t i = 0; i < slots.size(); ++i) {
    const auto grad = saved.tensors.find(params[i].name + "/delayed");
    if (grad == saved.tensors.end() || !slots[i].trained) continue;
    give_homes(i, grad->second.scalar_type());
    slots[i].came[0] = true;
    wanted.set(grad->first, slots[i].grads[0], params[i].piece);
  }
  if (options.delay_from > 0) set = 1;  // the step to come does not write over it
}

void HostParams::Impl::loaded() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].trained && slots[i].wide && !slots[i].updated)
      params[i].tensor.detach().copy_(below[i].tensor.detach());
}

}  // namespace braid::parallel
