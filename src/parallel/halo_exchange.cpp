// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/halo_exchange.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/core/observe.h"

namespace braid::parallel {

RowEdges edges_of(const at::Tensor& band, int64_t rows, int64_t dim) {
  return {band.narrow(dim, 0, rows), band.narrow(dim, band.size(dim) - rows, rows)};
}

void add_to_edges(const at::Tensor& band, const RowEdges& edges, int64_t dim) {
  if (edges.above.defined()) band.narrow(dim, 0, edges.above.size(dim)).add_(edges.above);
  if (!edges.below.defined()) return;
  const int64_t rows = edges.below.size(dim);
  band.narrow(dim, band.size(dim) - rows, rows).add_(edges.below);
}

EdgeExchange::EdgeExchange(const comm::Group& group, const RowEdges& given) {
  const int rank = group.rank();
  if (rank > 0) swap(group, rank - 1, given.above, got_.above);
  if (rank + 1 < group.size()) swap(group, rank + 1, given.below, got_.below);
}

void EdgeExchange::swap(const comm::Group& group, int peer, const at::Tensor& given,
                        at::Tensor& got) {
  got = at::empty(given.sizes(), given.options());  // stays, if autograd saves it
  under_way_.push_back(group.recv(got, peer));
  const MemoryScope buffers(MemoryKind::communication);
  under_way_.push_back(group.send(given.contiguous(), peer));
}

RowEdges EdgeExchange::wait() {
  for (comm::Pending& pending : under_way_) pending.wait();
  under_way_.clear();
  return got_;
}

void check_thick(const at::Tensor& band, int64_t rows, int64_t dim, const comm::Group& group) {
  if (band.size(dim) >= rows) return;
  throw ConfigError(
      {.what = fmt::format("rank {} of {} has a band of {} rows, its neighbours want {} of it",
                           group.rank(), group.size(), band.size(dim), rows),
       .why = "a halo comes from the next band alone, not from the one behind it",
       .fix = "spread the image over fewer ranks, or take larger images"});
}

}  // namespace braid::parallel
