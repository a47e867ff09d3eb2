// SPDX-License-Identifier: BSD-3-Clause
// There is one device.
#pragma once
#include <c10/core/Device.h>

namespace c10::cuda {

class CUDAGuard {
 public:
  explicit CUDAGuard(c10::Device) {}
  ~CUDAGuard() {}  // NOLINT: else nobody would use it
};

}  // namespace c10::cuda
