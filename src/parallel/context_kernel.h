// SPDX-License-Identifier: BSD-3-Clause
// The kernel of one block of attention: the one that kernels::attention runs for these tensors,
// called so that it gives the logarithm of the sum of exponentials, too.
//
//   auto [out, lse] = attend_block(q, k, v, {.causal = true});
//   auto [dq, dk, dv] = attend_block_backward({grad, q, k, v, whole_out, whole_lse}, how);
#pragma once
#include <tuple>

#include <ATen/core/Tensor.h>

#include "braid/kernels/attention.h"

namespace braid::parallel {

// q [B, H, N, D]; k, v [B, H or fewer, M, D] -> out [B, H, N, D], lse [B, H, N] in fp32 or better.
std::tuple<at::Tensor, at::Tensor> attend_block(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v,
                                                const kernels::AttentionOptions& how);

// out and lse are those of the queries over all blocks: then the gradients of blocks add up.
struct KernelSaved {
  at::Tensor grad_out, q, k, v, out, lse;
};
std::tuple<at::Tensor, at::Tensor, at::Tensor> attend_block_backward(
    const KernelSaved& saved, const kernels::AttentionOptions& how);

}  // namespace braid::parallel
