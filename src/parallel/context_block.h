// SPDX-License-Identifier: BSD-3-Clause
// Attention block by block: some queries against some keys, with the logarithm of the sum of
// exponentials of each query, by which blocks are put together exactly.
//
//   BlockSum sum;
//   for (const AttentionBlock& block : blocks) sum.add(block, q, k, v, how);
//   return sum.out.to(q.scalar_type());
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/param.h"
#include "braid/kernels/attention.h"

namespace braid::parallel {

// A rectangle of the table of queries and keys, in the order in which tensors hold them.
struct AttentionBlock {
  Range queries, keys;
  bool causal = false;  // the same tokens on both sides, of which each sees those up to it
  bool operator==(const AttentionBlock&) const = default;
};

// What of the table is not hidden: `queries` and `keys` are the positions of the tokens, ascending.
// Either all tokens are the same on both sides, or none.
std::vector<AttentionBlock> seen_blocks(const std::vector<Range>& queries,
                                        const std::vector<Range>& keys, bool causal);
// Blocks of the same queries and of neighbouring keys become one.
std::vector<AttentionBlock> joined_blocks(std::vector<AttentionBlock> blocks);

int64_t tokens_in(const std::vector<Range>& ranges);
// Positions of the tokens part.begin, part.begin + 1, ... in the order of the ranges.
std::vector<Range> ranges_within(const std::vector<Range>& ranges, Range part);

struct BlockHow {
  kernels::AttentionOptions options = {};  // causal is that of the block
  int64_t tokens = 0;                      // of the whole sample
  std::vector<Range> queries, keys;        // positions of what the tensors hold
};

// The attention of all blocks so far, in fp32 or better.
struct BlockSum {
  at::Tensor out;  // [B, H, N, D]
  at::Tensor lse;  // [B, H, N]
  // The first block has all queries.
  void add(const AttentionBlock& block, const at::Tensor& q, const at::Tensor& k,
           const at::Tensor& v, const BlockHow& how);
};

// What the backward pass of each block needs; out and lse are of all blocks together.
struct BlockSaved {
  at::Tensor grad_out, q, out, lse;
};
struct BlockGrads {
  at::Tensor q, k, v;  // in fp32 or better, the sums so far
};
// Zeros for a sum, in fp32 or better.
at::Tensor zeros_for_sum(const at::Tensor& like);
void add_block_grads(BlockGrads& sums, const AttentionBlock& block, const BlockSaved& saved,
                     const at::Tensor& k, const at::Tensor& v, const BlockHow& how);

// Attention over blocks of keys that are all here, with autograd.
at::Tensor attention_by_blocks(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const std::vector<AttentionBlock>& blocks, const BlockHow& how);

}  // namespace braid::parallel
