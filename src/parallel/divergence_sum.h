// SPDX-License-Identifier: BSD-3-Clause
// Checksums of the bits of a tensor.
#pragma once
#include <cstdint>

#include <ATen/core/Tensor.h>

namespace braid::parallel {

uint64_t host_checksum(const at::Tensor& tensor);  // CPU
// int64 scalar on the tensor's device, by tensor operations alone: for devices. Works on any.
at::Tensor device_checksum(const at::Tensor& tensor);
// One number of many: int64 scalar on their device.
at::Tensor combined_checksum(const at::Tensor& sums);

}  // namespace braid::parallel
