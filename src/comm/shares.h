// SPDX-License-Identifier: BSD-3-Clause
// What backends compute of a call's tensors. Inline: libraries opened at run time use it, too.
#pragma once
#include <ATen/ops/amax.h>
#include <ATen/ops/amin.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/sum.h>

#include <vector>

#include "braid/comm/backend.h"

namespace braid::comm {

// Network libraries know a few dtypes; what only moves goes as bytes, so that every dtype can.
inline at::Tensor as_bytes(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// Bytes for each rank: of `counts` rows of the tensor, or equal shares.
inline std::vector<int64_t> byte_counts(const at::Tensor& tensor,
                                        const std::vector<int64_t>& counts, int size) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  if (counts.empty()) return std::vector<int64_t>(static_cast<size_t>(size), bytes / size);
  std::vector<int64_t> result;
  for (const int64_t rows : counts) result.push_back(rows == 0 ? 0 : bytes / tensor.size(0) * rows);
  return result;
}

// One row a rank, each of the shape of `share`: what a reduce-scatter gathers before it adds.
inline at::Tensor rank_rows(const at::Tensor& share, int ranks) {
  std::vector<int64_t> shape = {ranks};
  shape.insert(shape.end(), share.sizes().begin(), share.sizes().end());
  return at::empty(shape, share.options());
}

inline void reduce_rows(const at::Tensor& out, const at::Tensor& rows, Op op) {
  at::Tensor target = out;
  if (op == Op::max) {
    at::amax_out(target, rows, {0});
  } else if (op == Op::min) {
    at::amin_out(target, rows, {0});
  } else {
    at::sum_out(target, rows, at::IntArrayRef{0}, /*keepdim=*/false, out.scalar_type());
  }
}

}  // namespace braid::comm
