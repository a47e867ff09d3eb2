// SPDX-License-Identifier: BSD-3-Clause
// A place in the graph that says when the gradient comes by.
#pragma once
#include <functional>

#include <ATen/core/Tensor.h>

namespace braid::parallel {

// x itself; `passing` is called in the backward pass before the gradient goes on to what made x.
at::Tensor gated(const at::Tensor& x, std::function<void()> passing);

}  // namespace braid::parallel
