// SPDX-License-Identifier: BSD-3-Clause
// A tensor cut up along its last dimension, without a copy in either direction.
//
//   // [..., 3 width] -> three of [..., width]
//   const auto qkv = kernels::parts(at::linear(x, w), 3);
//
// As chunk(count, -1), whose backward pass copies the gradients of the parts into that of the
// whole. Here they are it if they lie side by side in one tensor, as those of kernels/attention.h
// on CUDA do.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// The last dimension is a multiple of `count`. The parts are not to be written to.
std::vector<at::Tensor> parts(const at::Tensor& whole, int64_t count);

}  // namespace braid::kernels
