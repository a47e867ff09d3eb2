// SPDX-License-Identifier: BSD-3-Clause
// The gradients that exist, in lists that one foreach call takes (one dtype and device each).
//
//   for (const auto& grads : grads_by_kind(params)) at::_foreach_mul_(grads, 0.5);
#pragma once
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"

namespace braid::optim {

std::vector<std::vector<at::Tensor>> grads_by_kind(const std::vector<Param>& params);

}  // namespace braid::optim
