// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/tensor.h"

#include <utility>

#include <ATen/ops/add.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/embedding.h>
#include <fmt/format.h>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "parallel/tensor_paths.h"

namespace braid::parallel {
namespace {

struct UnitShares {
  comm::Counts counts;  // units of each rank
  int64_t sharers = 1;  // ranks that hold the same ones
};

UnitShares share_units(int64_t units, int ranks) {
  if (units >= ranks) return {comm::even_shares(units, ranks)};
  if (units > 0 && ranks % units == 0)
    return {comm::Counts(static_cast<size_t>(ranks), 1), ranks / units};
  throw ConfigError(
      {.what =
           fmt::format("{} units of a layer are to be split over mesh.tensor = {}", units, ranks),
       .why = "each rank needs at least one unit (a head, a number), and ranks that share one are "
              "as many for each",
       .fix = fmt::format("set mesh.tensor to a divisor of {}", units)});
}

kernels::ProductOptions products_of(const SplitAxis& axis) {
  return {.later = axis.later, .fp8 = axis.fp8};
}

// For products in several chunks, which share one cast.
std::vector<SplitWeights> in_dtype(const std::vector<SplitWeights>& layers, const at::Tensor& x) {
  std::vector<SplitWeights> cast;
  for (const SplitWeights& layer : layers)
    cast.push_back({layer.weight.to(x.scalar_type()),
                    layer.bias.defined() ? layer.bias.to(x.scalar_type()) : layer.bias});
  return cast;
}

}  // namespace

std::vector<Range> split_ranges(int64_t size, const comm::Group& group, int64_t unit,
                                int64_t parts) {
  const int64_t part = size / parts;
  if (group.size() == 1) return {{0, size}};
  const UnitShares shares = share_units(part / unit, group.size());
  int64_t first = 0;
  if (shares.sharers > 1) first = group.rank() / shares.sharers;
  for (int rank = 0; shares.sharers == 1 && rank < group.rank(); ++rank)
    first += shares.counts[static_cast<size_t>(rank)];
  const int64_t count = shares.counts[static_cast<size_t>(group.rank())];
  std::vector<Range> ranges;
  for (int64_t begin = 0; begin < size; begin += part)
    ranges.push_back({begin + first * unit, begin + (first + count) * unit});
  return ranges;
}

std::vector<int> unit_sharers(int64_t size, const comm::Group& group, int64_t unit) {
  const auto sharers = static_cast<int>(share_units(size / unit, group.size()).sharers);
  std::vector<int> ranks;
  for (int i = 0; i < sharers; ++i) ranks.push_back(group.rank() / sharers * sharers + i);
  return ranks;
}

bool splits_tokens(const at::Tensor& x, const SplitAxis& axis) {
  return axis.sequence && axis.group.size() > 1 && x.dim() > 2;
}

comm::Counts token_counts(const at::Tensor& share, const SplitAxis& axis, int64_t tokens) {
  const int ranks = axis.group.size();
  return comm::even_shares(tokens > 0 ? tokens : share.size(1) * ranks, ranks);
}

at::Tensor enter_split(const at::Tensor& x, const SplitAxis& axis, int64_t tokens) {
  if (!splits_tokens(x, axis)) return comm::copy_to(x, axis.group);
  // In one piece: a matmul of a strided x would copy it, and each layer that takes it its own.
  return comm::all_gather(x, axis.group, 1, token_counts(x, axis, tokens)).contiguous();
}

at::Tensor leave_split(const at::Tensor& part, const SplitAxis& axis) {
  return splits_tokens(part, axis) ? comm::reduce_scatter(part, axis.group, 1)
                                   : comm::reduce_from(part, axis.group);
}

std::vector<at::Tensor> column_linears(const at::Tensor& x, const std::vector<SplitWeights>& layers,
                                       const SplitAxis& axis, int64_t tokens) {
  if (axis.regather && splits_tokens(x, axis))
    return regathered_columns(x, in_dtype(layers, x), axis, tokens);
  if (runs_in_chunks(x, axis)) return chunked_columns(x, in_dtype(layers, x), axis, tokens);
  return kernels::linears(enter_split(x, axis, tokens), layers, products_of(axis));
}

at::Tensor row_linear(kernels::Activated x, const SplitWeights& layer, const SplitAxis& axis) {
  if (axis.group.size() == 1) return kernels::linears(std::move(x), {layer}, products_of(axis))[0];
  at::Tensor y;
  if (runs_in_chunks(x.x, axis))
    y = chunked_rows(kernels::activated(x), in_dtype({layer}, x.x)[0].weight, axis);
  else
    y = leave_split(kernels::linears(std::move(x), {{layer.weight}}, products_of(axis))[0], axis);
  return layer.bias.defined() ? at::add(y, layer.bias.to(y.scalar_type())) : y;
}

at::Tensor split_embedding(const at::Tensor& ids, const at::Tensor& weight, const Range& held,
                           const SplitAxis& axis) {
  if (axis.group.size() == 1) return at::embedding(weight, ids);
  const at::Tensor outside = at::bitwise_or(ids.lt(held.begin), ids.ge(held.end));
  const at::Tensor rows = ids.sub(held.begin).masked_fill_(outside, 0);
  return leave_split(at::embedding(weight, rows).masked_fill(outside.unsqueeze(-1), 0), axis);
}

}  // namespace braid::parallel
