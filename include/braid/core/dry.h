// SPDX-License-Identifier: BSD-3-Clause
// Dry tensors: they carry the keys of a device (CPU or CUDA), sizes and strides, and no data.
// memory::DryRun makes them; this header is what every module may ask about them.
//
//   if (is_dry(weight)) return;                      // nothing to fill
//   if (dry_device() == c10::kCUDA) scratch(bytes);  // in a Meta kernel: what a device would take
#pragma once
#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace braid {

inline bool is_dry(const at::Tensor& tensor) {
  return tensor.defined() && tensor.key_set().has(c10::DispatchKey::Fake);
}

// Whether the tensor has values that can be read: neither dry nor on the meta device.
inline bool has_data(const at::Tensor& tensor) {
  return tensor.defined() && !is_dry(tensor) && !tensor.is_meta();
}

// The device that the operator now running on this thread pretends to run on; nullopt outside of a
// dry run. Lives within one operator on one thread, so a thread_local may hold it.
std::optional<c10::DeviceType> dry_device();

class DryDeviceGuard {
 public:
  explicit DryDeviceGuard(c10::DeviceType device);
  ~DryDeviceGuard();
  DryDeviceGuard(const DryDeviceGuard&) = delete;
  DryDeviceGuard& operator=(const DryDeviceGuard&) = delete;

 private:
  std::optional<c10::DeviceType> before_;
};

}  // namespace braid
