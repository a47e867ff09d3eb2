// SPDX-License-Identifier: BSD-3-Clause
// Tensors that are parts of one.
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

// The parts [..., width] as one tensor if they lie so, one after another along the last dimension;
// else, or if one of them is undefined, undefined.
at::Tensor side_by_side(const std::vector<at::Tensor>& parts);

}  // namespace braid::kernels
