// SPDX-License-Identifier: BSD-3-Clause
// A part of a flat tensor that shares its memory but is no view to autograd: optimizers of torch
// call detach_() on gradients, which views refuse.
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::parallel {

// Elements from `first` on. May reach over the end of a storage whose memory comes later.
at::Tensor bare_view(const at::Tensor& flat, at::IntArrayRef sizes, int64_t first);

}  // namespace braid::parallel
