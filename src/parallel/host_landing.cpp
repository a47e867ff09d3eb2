// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/host_landing.h"

#include <utility>

#include "braid/core/observe.h"
#include "parallel/host_copy.h"

namespace braid::parallel {

void HostLanding::bring(const at::Tensor& home, at::Tensor grad) {
  if (!grad.is_cuda()) {
    home.copy_(grad);
    return;
  }
  std::unique_ptr<Moment> done = copy_with_host(home, grad);
  flying_.push_back({std::move(grad), std::move(done)});
  if (flying_.size() <= static_cast<size_t>(window_)) return;
  if (flying_.front().done != nullptr) flying_.front().done->stream_wait();
  flying_.pop_front();
}

void HostLanding::add(const at::Tensor& home, at::Tensor grad) {
  if (!grad.is_cuda()) {
    home.add_(grad);
    return;
  }
  land_first();
  Stage& stage = stages_[turn_++ % stages_.size()];
  settle(stage);
  const auto bytes = static_cast<int64_t>(grad.nbytes());
  if (!stage.memory.defined() || stage.memory.numel() < bytes) {
    const MemoryScope buffers(MemoryKind::communication);
    stage.memory.reset();
    stage.memory = host_memory(bytes, c10::kByte, grad);
  }
  stage.view = stage.memory.narrow(0, 0, bytes).view(grad.scalar_type()).view(grad.sizes());
  stage.home = home;
  stage.done = copy_with_host(stage.view, grad);
  stage.grad = std::move(grad);
}

// The first gradients of a step are there before anything is added to them.
void HostLanding::land_first() {
  for (; !flying_.empty(); flying_.pop_front())
    if (flying_.front().done != nullptr) flying_.front().done->host_wait();
}

void HostLanding::settle(Stage& stage) {
  if (!stage.grad.defined()) return;
  if (stage.done != nullptr) stage.done->host_wait();
  stage.home.add_(stage.view);
  for (at::Tensor* gone : {&stage.grad, &stage.view, &stage.home}) gone->reset();
  stage.done.reset();
}

void HostLanding::wait() {
  land_first();
  for (size_t i = 0; i < stages_.size(); ++i) settle(stages_[turn_++ % stages_.size()]);
}

}  // namespace braid::parallel
