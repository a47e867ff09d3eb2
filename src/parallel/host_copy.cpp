// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/host_copy.h"

#include <ATen/ops/empty.h>

#include "braid/core/dry.h"

namespace braid::parallel {

at::Tensor host_memory(int64_t elements, c10::ScalarType dtype, const at::Tensor& there) {
  const at::TensorOptions host = at::TensorOptions(c10::kCPU).dtype(dtype);
  if (!there.is_cuda()) return at::empty({elements}, host);
  if (is_dry(there)) return at::empty({elements}, host.pinned_memory(true));
  return accelerator()->pinned_like(at::empty({elements}, host.device(c10::kMeta)));
}

std::unique_ptr<Moment> copy_with_host(const at::Tensor& to, const at::Tensor& from) {
  const bool gpu = (to.is_cuda() && !is_dry(to)) || (from.is_cuda() && !is_dry(from));
  if (gpu) return accelerator()->copy_beside(to, from);
  to.copy_(from);
  return nullptr;
}

}  // namespace braid::parallel
