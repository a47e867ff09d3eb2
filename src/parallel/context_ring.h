// SPDX-License-Identifier: BSD-3-Clause
// Attention for which keys and values go round the ranks of the context axis: each rank computes
// with those that are here, while the next ones are on their way.
//
//   y = ring_attention(q, k, v, share, context, {.causal = true});
#pragma once
#include "braid/parallel/context.h"

namespace braid::parallel {

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenShare& share, const comm::Group& context,
                          const kernels::AttentionOptions& options);

}  // namespace braid::parallel
