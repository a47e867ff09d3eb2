// SPDX-License-Identifier: BSD-3-Clause
// Memory of the host for what travels to and from a device, and the copies.
#pragma once
#include <memory>

#include <ATen/core/Tensor.h>

#include "braid/core/accelerator.h"

namespace braid::parallel {

// Flat memory of the host for copies to and from where `there` lies: page-locked for a GPU, dry for
// a dry tensor.
at::Tensor host_memory(int64_t elements, c10::ScalarType dtype, const at::Tensor& there);

// Copies beside the work of the GPU, if one of them is there: both stay until the moment. Null:
// done.
std::unique_ptr<Moment> copy_with_host(const at::Tensor& to, const at::Tensor& from);

}  // namespace braid::parallel
