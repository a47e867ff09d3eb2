// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/host.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "braid/core/dry.h"
#include "braid/core/observe.h"
#include "parallel/host_copy.h"
#include "parallel/host_impl.h"

namespace braid::parallel {

class HostParams::Impl::Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Impl* impl, size_t index) : impl_(impl), index_(index) {}
  void operator()(const at::Tensor&) override { impl_->arrived(index_); }

 private:
  Impl* impl_;  // outlives the hook: ~HostParams takes it off
  size_t index_;
};

void HostParams::Impl::build() {
  const at::NoGradGuard no_grad;
  for (const Param& param : below) {
    HostSlot& slot = slots.emplace_back();
    slot.trained = param.tensor.requires_grad();
    slot.wide =
        param.tensor.element_size() < static_cast<int64_t>(c10::elementSize(options.master));
    Param& host = params.emplace_back(param);
    if (!slot.trained) continue;
    const c10::ScalarType dtype = slot.wide ? options.master : param.tensor.scalar_type();
    const at::Tensor master =
        at::empty(param.tensor.sizes(), at::TensorOptions(c10::kCPU).dtype(dtype));
    master.copy_(param.tensor.detach());
    host.tensor = master.requires_grad_();
  }
  mark_all();
  make_tiles();
}

// Weights that lie on the host already (pieces of ZeRO-3) need none.
void HostParams::Impl::make_tiles() {
  int64_t bytes = 0;
  at::Tensor there;
  for (size_t i = 0; i < slots.size(); ++i) {
    const at::Tensor& weight = below[i].tensor;
    if (!slots[i].trained || !weight.is_cuda()) continue;
    there = weight;
    bytes = std::max(bytes, std::min(options.tile, weight.numel()) * weight.element_size());
  }
  if (!there.defined()) return;
  const MemoryScope buffers(MemoryKind::communication);
  for (HostTile& tile : tiles) tile.memory = host_memory(bytes, c10::kByte, there);
}

void HostParams::Impl::put_hooks() {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].trained)
      torch::autograd::impl::set_post_acc_grad_hooks(below[i].tensor,
                                                     std::make_unique<Hook>(this, i));
}

void HostParams::Impl::mark_all() const {
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::string_view module = module_of(below[i]);
    if (inner == nullptr) mark(below[i].tensor, MemoryKind::parameter, module);
    if (slots[i].trained) mark(params[i].tensor, MemoryKind::master_weight, module);
    for (const at::Tensor& grad : slots[i].grads) mark(grad, MemoryKind::gradient, module);
  }
}

// One tile is cast while the one before travels.
void HostParams::Impl::send(size_t index) {
  const at::Tensor weight = below[index].tensor.detach(), master = params[index].tensor.detach();
  if (!options.weights_on_host) traffic.to_device += static_cast<int64_t>(weight.nbytes());
  if (!weight.is_cuda()) {
    weight.copy_(master);
    return;
  }
  const at::Tensor to = weight.view({-1}), from = master.view({-1});
  for (int64_t begin = 0; begin < to.numel(); begin += options.tile) {
    const int64_t count = std::min(options.tile, to.numel() - begin);
    HostTile& tile = tiles[turn++ % tiles.size()];
    if (tile.done != nullptr) tile.done->host_wait();
    const at::Tensor part =
        tile.memory.narrow(0, 0, count * to.element_size()).view(to.scalar_type());
    part.copy_(from.narrow(0, begin, count));
    tile.done = copy_with_host(to.narrow(0, begin, count), part);
  }
}

void HostParams::Impl::publish() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].trained && !std::exchange(slots[i].sent, false)) send(i);
  for (const HostTile& tile : tiles)
    if (tile.done != nullptr) tile.done->stream_wait();
  if (inner != nullptr) inner->publish();
}

HostParams::HostParams(const std::vector<Param>& params, HostOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->landing = HostLanding(options.window);
  impl_->below = params;
  impl_->build();
  if (options.stream) impl_->put_hooks();
}

HostParams::HostParams(std::unique_ptr<Sync> inner, HostOptions options)
    : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  impl_->landing = HostLanding(options.window);
  impl_->inner = std::move(inner);
  impl_->below = impl_->inner->params();
  impl_->build();
}

HostParams::~HostParams() {
  if (impl_->inner != nullptr || !impl_->options.stream) return;
  for (size_t i = 0; i < impl_->slots.size(); ++i)
    if (impl_->slots[i].trained)
      torch::autograd::impl::set_post_acc_grad_hooks(impl_->below[i].tensor, nullptr);
}

const std::vector<Param>& HostParams::params() const { return impl_->params; }
const std::vector<Param>& HostParams::below() const { return impl_->below; }
Sync* HostParams::inner() const { return impl_->inner.get(); }
const comm::Group& HostParams::owners() const {
  return impl_->inner != nullptr ? impl_->inner->owners() : impl_->alone;
}
void HostParams::hold(bool on) {
  if (impl_->inner != nullptr) impl_->inner->hold(on);
}
void HostParams::finish() { impl_->finish(); }
void HostParams::publish() { impl_->publish(); }
void HostParams::mark_memory() const { impl_->mark_all(); }
void HostParams::begin(int64_t step) { impl_->begin(step); }
void HostParams::update(const HostUpdate& update, const HostApply& apply, int64_t step) {
  impl_->update(update, apply, step);
}
State HostParams::state() const { return impl_->state(); }
State HostParams::prepare(const State& saved, const HostApply& apply) {
  return impl_->prepare(saved, apply);
}
void HostParams::loaded() { impl_->loaded(); }
memory::Traffic HostParams::traffic() const { return impl_->traffic; }

std::vector<Param> HostParams::stored() const {
  std::vector<Param> result = impl_->params;
  for (size_t i = 0; i < result.size(); ++i)
    if (impl_->slots[i].wide) result[i].tensor = impl_->below[i].tensor;
  return result;
}

}  // namespace braid::parallel
