// SPDX-License-Identifier: BSD-3-Clause
// Rotary positions in the rotate-half layout: element i of a head turns with element i + width/2.
//
//   at::Tensor q = kernels::rotary(q_proj, cos, sin);   // q_proj [batch, seq, heads, width], cos
//   and sin [seq, width/2]
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

// Computed in the dtype of the tables, rounded once to the dtype of x. Nothing but the tables is
// kept for the backward pass: the gradient turns the other way.
at::Tensor rotary(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin);

}  // namespace braid::kernels
