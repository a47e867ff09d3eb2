// SPDX-License-Identifier: BSD-3-Clause
// Collectives that autograd goes through: the backward pass of each is its mirror image.
//
//   at::Tensor x = comm::copy_to(input, tensor_axis);     // backward: gradients are summed
//   at::Tensor y = comm::reduce_from(partial, tensor_axis);  // forward: parts are summed
//
// A dimension is shared out by `counts` (rows of each rank); empty: as evenly as it goes, the first
// ranks one more. In a group of one rank each returns its input.
#pragma once
#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"

namespace braid::comm {

using Counts = std::vector<int64_t>;

Counts even_shares(int64_t size, int ranks);  // 8 over 3: 3, 3, 2

at::Tensor copy_to(const at::Tensor& x, const Group& group);      // same; backward: sum
at::Tensor reduce_from(const at::Tensor& x, const Group& group);  // sum; backward: same
// The whole of what each rank holds a share of; backward: the own share of the gradient, which is
// the same on all ranks.
at::Tensor gather_from(const at::Tensor& share, const Group& group, int64_t dim,
                       const Counts& counts = {});
// The own share of what all ranks hold; backward: gathered.
at::Tensor scatter_to(const at::Tensor& whole, const Group& group, int64_t dim,
                      const Counts& counts = {});
// The whole; backward: gradients of all ranks are summed, each keeps its share.
at::Tensor all_gather(const at::Tensor& share, const Group& group, int64_t dim,
                      const Counts& counts = {});
// The own share of the sum; backward: gathered.
at::Tensor reduce_scatter(const at::Tensor& whole, const Group& group, int64_t dim,
                          const Counts& counts = {});
// Splits one dimension and joins another (sequence and heads of attention); backward: the reverse.
// The split dimension is shared out evenly as even_shares says, the joined one by `counts`.
at::Tensor all_to_all(const at::Tensor& x, const Group& group, int64_t split_dim, int64_t join_dim,
                      const Counts& counts = {});

}  // namespace braid::comm
