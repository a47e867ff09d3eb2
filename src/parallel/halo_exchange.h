// SPDX-License-Identifier: BSD-3-Clause
// Rows at the edges of a band under way between neighbours.
//
//   EdgeExchange exchange(group, edges_of(x, 1, 2));   // starts
//   at::Tensor y = inner(x);
//   RowEdges halo = exchange.wait();                   // of the ranks above and below
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "braid/comm/group.h"

namespace braid::parallel {

// Undefined where the image ends.
struct RowEdges {
  at::Tensor above, below;
};

RowEdges edges_of(const at::Tensor& band, int64_t rows, int64_t dim);

// Adds to the first and last rows of `band`, in place.
void add_to_edges(const at::Tensor& band, const RowEdges& edges, int64_t dim);

// `above` goes to the rank above and `below` to the one below; what they gave comes back.
class EdgeExchange {
 public:
  EdgeExchange(const comm::Group& group, const RowEdges& given);
  RowEdges wait();

 private:
  void swap(const comm::Group& group, int peer, const at::Tensor& given, at::Tensor& got);
  RowEdges got_;
  std::vector<comm::Pending> under_way_;
};

// A group that a node of autograd keeps for its backward pass.
struct HeldGroup : torch::CustomClassHolder {
  explicit HeldGroup(comm::Group given) : group(std::move(given)) {}
  comm::Group group;
};

// Throws ConfigError unless the band has as many rows as its neighbours will want of it.
void check_thick(const at::Tensor& band, int64_t rows, int64_t dim, const comm::Group& group);

}  // namespace braid::parallel
