// SPDX-License-Identifier: BSD-3-Clause
// The ways through a split layer: plain, in chunks of tokens that travel while matmuls run, and
// with an input that is gathered twice.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "braid/comm/differentiable.h"
#include "braid/parallel/tensor.h"

namespace braid::parallel {

bool splits_tokens(const at::Tensor& x, const SplitAxis& axis);
// Tokens of each rank; `tokens` 0: all have as many as this one.
comm::Counts token_counts(const at::Tensor& share, const SplitAxis& axis, int64_t tokens);

// Tokens in chunks: each rank's tokens are cut evenly, chunk c is the c-th piece of every rank.
struct TokenChunks {
  comm::Counts tokens;                // of each rank
  std::vector<comm::Counts> by_rank;  // by_rank[r][c]: tokens in chunk c of rank r
  TokenChunks(comm::Counts tokens, int64_t chunks);
  int64_t count() const { return static_cast<int64_t>(by_rank[0].size()); }
  comm::Counts of(int64_t chunk) const;  // of each rank
};
// Chunks with tokens in front, each as TokenChunks cuts them -> [batch, all tokens, ...].
at::Tensor in_token_order(const std::vector<at::Tensor>& chunks, const TokenChunks& cut);

bool runs_in_chunks(const at::Tensor& x, const SplitAxis& axis);
std::vector<at::Tensor> chunked_columns(const at::Tensor& x,
                                        const std::vector<SplitWeights>& layers,
                                        const SplitAxis& axis, int64_t tokens);
at::Tensor chunked_rows(const at::Tensor& x, const at::Tensor& weight, const SplitAxis& axis);

std::vector<at::Tensor> regathered_columns(const at::Tensor& x,
                                           const std::vector<SplitWeights>& layers,
                                           const SplitAxis& axis, int64_t tokens);

}  // namespace braid::parallel
