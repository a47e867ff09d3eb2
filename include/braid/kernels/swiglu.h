// SPDX-License-Identifier: BSD-3-Clause
// The gate of a Llama MLP: silu(gate) * up. Keeps its two inputs for the backward pass and computes
// silu again there.
//
//   at::Tensor hidden = kernels::swiglu(gate_proj(x), up_proj(x));   // all of one shape and dtype
#pragma once
#include <ATen/core/Tensor.h>

namespace braid::kernels {

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace braid::kernels
