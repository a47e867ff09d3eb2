// SPDX-License-Identifier: BSD-3-Clause
// Tensor parallelism for any LibTorch module: the first of two linear layers is split by outputs
// (columns), the second one by inputs (rows), and the ranks talk once at each end.
//
//   const parallel::SplitAxis axis{.group = tensor};
//   at::Tensor h = parallel::column_linears(x, {{w1, b1}}, axis)[0];   // this rank's outputs
//   at::Tensor y = parallel::row_linear(h.relu(), {w2, b2}, axis);     // the sum over ranks
//
// With `sequence` what stands between such pairs (norms, residuals, dropout) holds a share of the
// tokens, dimension 1, as comm::even_shares deals them. Parameters there have a part of their
// gradient on each rank. In a group of one rank these are plain linear layers.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/param.h"
#include "braid/kernels/linear.h"

namespace braid::parallel {

struct SplitAxis {
  comm::Group group = {};
  bool sequence = false;  // x of column_linears and y of row_linear are a share of the tokens
  bool regather = false;  // with sequence: only the share is kept, the backward pass gathers again
  int64_t overlap = 1;    // chunks of tokens: one travels while the matmul of another runs
  std::shared_ptr<kernels::Deferred> later = {};  // takes gradients of weights
  Fp8 fp8 = Fp8::off;  // products of 8-bit floats; with overlap or regather those of the dtype
};

// Parameters as this rank holds them. The bias: columns, of its outputs; rows, of all, added after
// the sum.
using SplitWeights = kernels::LinearWeights;

// What a rank holds of a dimension that comes in `parts` equal parts of units of `unit` numbers:
// the r-th even share of the units of each part. Fewer units than ranks, and ranks a multiple of
// them: neighbours hold the same unit. Throws ConfigError if a rank would have none, or some would
// share in part.
std::vector<Range> split_ranges(int64_t size, const comm::Group& group, int64_t unit = 1,
                                int64_t parts = 1);
// The ranks of the group that hold the same units as this one, ascending.
std::vector<int> unit_sharers(int64_t size, const comm::Group& group, int64_t unit);

// What all column-split layers take, of all tokens; backward: the sum over ranks. `tokens`: of all
// ranks together, needed with `sequence` where shares are not equal.
at::Tensor enter_split(const at::Tensor& x, const SplitAxis& axis, int64_t tokens = 0);
// The sum over ranks, or this rank's tokens of it.
at::Tensor leave_split(const at::Tensor& part, const SplitAxis& axis);

// Column-split layers that take the same x: it enters once for all of them.
std::vector<at::Tensor> column_linears(const at::Tensor& x, const std::vector<SplitWeights>& layers,
                                       const SplitAxis& axis, int64_t tokens = 0);
at::Tensor row_linear(kernels::Activated x, const SplitWeights& layer, const SplitAxis& axis);

// Rows `held` of an embedding table: each rank looks up what it has, and they leave as above.
at::Tensor split_embedding(const at::Tensor& ids, const at::Tensor& weight, const Range& held,
                           const SplitAxis& axis);

}  // namespace braid::parallel
