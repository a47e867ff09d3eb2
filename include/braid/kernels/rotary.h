// SPDX-License-Identifier: BSD-3-Clause
// Rotary positions in the rotate-half layout: element i of a head turns with element i + width/2.
//
//   // q_proj [batch, seq, heads, width], k_proj the same with heads of its own,
//   // cos and sin [seq, width/2]
//   auto [q, k] = kernels::rotary(q_proj, k_proj, {cos, sin});
#pragma once
#include <utility>

#include <ATen/core/Tensor.h>

namespace braid::kernels {

struct Turn {
  at::Tensor cos, sin;
};

// Computed in fp32 or better (fp64 for fp64), rounded once. Nothing but the tables is kept for the
// backward pass: the gradient turns the other way. q and k may be parts of one product.
std::pair<at::Tensor, at::Tensor> rotary(const at::Tensor& q, const at::Tensor& k,
                                         const Turn& turn);

}  // namespace braid::kernels
