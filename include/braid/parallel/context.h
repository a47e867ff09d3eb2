// SPDX-License-Identifier: BSD-3-Clause
// Context parallelism: the tokens of a sample are spread over the ranks of an axis; attention is
// the only place where they meet.
//
//   parallel::TokenShare share = parallel::share_tokens(
//       4050, context, parallel::ContextMethod::ring, causal);
//   x = parallel::take_tokens(x, share, 1);  // this rank's tokens
//   y = parallel::context_attention(q, k, v, share, context,
//                                   {.method = parallel::ContextMethod::ring});
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/param.h"
#include "braid/kernels/attention.h"

namespace braid::parallel {

enum class ContextMethod : uint8_t {
  gather,     // keys and values of all ranks are gathered
  ring,       // they go round, while the attention of those that are here is computed
  all_to_all  // tokens are exchanged for heads
};

// Which tokens of a sample each rank holds.
struct TokenShare {
  int64_t tokens = 0;                       // of the whole sample
  std::vector<std::vector<Range>> by_rank;  // ascending positions
  int rank = 0;
  const std::vector<Range>& mine() const { return by_rank.at(static_cast<size_t>(rank)); }
  int64_t count(int of_rank) const;
  int64_t count() const { return count(rank); }
  bool is_whole() const { return by_rank.size() == 1; }
};

// As even as it goes. A causal ring gives each rank a run from the head and its mirror image from
// the tail, so that all have as many pairs to attend to. Throws ConfigError if a rank would have
// none.
TokenShare share_tokens(int64_t tokens, const comm::Group& context, ContextMethod method,
                        bool causal);
at::Tensor take_tokens(const at::Tensor& x, const TokenShare& share, int64_t dim);
// The tokens of all ranks in their order, on every rank; backward: the own share.
at::Tensor join_tokens(const at::Tensor& x, const TokenShare& share, const comm::Group& context,
                       int64_t dim);
at::Tensor positions_of(const TokenShare& share, const at::Device& device);  // [count], int64

// Throws ConfigError if the method cannot share out so many heads of q (of this rank, after
// tensor): all_to_all gives each rank of the context axis whole heads.
void check_context_heads(int64_t heads, const comm::Group& context, ContextMethod method);

struct ContextAttentionOptions {
  kernels::AttentionOptions attention = {};  // dropout windows of heads are given, those of tokens
                                             // are not
  ContextMethod method = ContextMethod::gather;
};

// q [B, H, count, D]; k, v [B, H or fewer, count, D]. A context of one rank: kernels::attention.
at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const TokenShare& share, const comm::Group& context,
                             const ContextAttentionOptions& options = {});

}  // namespace braid::parallel
