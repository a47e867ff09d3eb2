// SPDX-License-Identifier: BSD-3-Clause
// Gradients leave the device as they come.
#include <ATen/core/grad_mode.h>

#include <utility>

#include "braid/core/observe.h"
#include "parallel/host_copy.h"
#include "parallel/host_impl.h"

namespace braid::parallel {

void HostParams::Impl::arrived(size_t index) {
  const at::NoGradGuard no_grad;
  take(index, std::exchange(below[index].tensor.mutable_grad(), at::Tensor()));
}

// Memory for gradients in the dtype that they have, from the first one on.
void HostParams::Impl::give_homes(size_t index, c10::ScalarType dtype) {
  HostSlot& slot = slots[index];
  if (slot.grads[0].defined() && slot.grads[0].scalar_type() == dtype) return;
  const at::Tensor& weight = below[index].tensor;
  const size_t sets = options.delay_from > 0 ? 2 : 1;
  for (size_t i = 0; i < sets; ++i) {
    slot.grads[i] = host_memory(weight.numel(), dtype, weight).view(weight.sizes());
    mark(slot.grads[i], MemoryKind::gradient, module_of(below[index]));
  }
}

void HostParams::Impl::take(size_t index, at::Tensor grad) {
  if (!grad.defined()) return;
  if (std::exchange(over, false))
    for (HostSlot& slot : slots) slot.came[set] = false;
  HostSlot& slot = slots[index];
  give_homes(index, grad.scalar_type());
  if (!options.weights_on_host) traffic.to_host += static_cast<int64_t>(grad.nbytes());
  if (std::exchange(slot.came[set], true))
    landing.add(slot.grads[set], std::move(grad));
  else
    landing.bring(slot.grads[set], std::move(grad));
}

void HostParams::Impl::finish() {
  const at::NoGradGuard no_grad;
  if (inner != nullptr) inner->finish();
  // Those of an inner sync, and what came without a hook (kernels/deferred.h).
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].trained) arrived(i);
  landing.wait();
  join();
  if (over)  // no gradient came in this step
    for (HostSlot& slot : slots) slot.came[set] = false;
  hand_out(set);
  over = true;
}

}  // namespace braid::parallel
