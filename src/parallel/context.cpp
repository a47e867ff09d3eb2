// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/context.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>

#include "braid/comm/differentiable.h"
#include "braid/core/error.h"
#include "parallel/context_block.h"
#include "parallel/context_ring.h"

namespace braid::parallel {
namespace {

void check_context_tokens(int64_t tokens, int ranks) {
  if (tokens >= ranks) return;
  throw ConfigError({.what = fmt::format("mesh.context = {} for {} tokens", ranks, tokens),
                     .why = "each rank of the context axis holds at least one token of a sample",
                     .fix = fmt::format("set mesh.context to at most {}", tokens)});
}

// Runs of tokens, one after the other, as even as it goes.
std::vector<Range> even_runs(int64_t tokens, int parts) {
  std::vector<Range> runs;
  int64_t first = 0;
  for (const int64_t count : comm::even_shares(tokens, parts)) {
    runs.push_back({first, first + count});
    first += count;
  }
  return runs;
}

// Without empty ranges, and neighbours as one.
std::vector<Range> tidy_ranges(const std::vector<Range>& ranges) {
  std::vector<Range> result;
  for (const Range& range : ranges) {
    if (range.size() == 0) continue;
    if (!result.empty() && result.back().end == range.begin)
      result.back().end = range.end;
    else
      result.push_back(range);
  }
  return result;
}

comm::Counts counts_by_rank(const TokenShare& share) {
  comm::Counts counts;
  for (const auto& ranges : share.by_rank) counts.push_back(tokens_in(ranges));
  return counts;
}

std::vector<Range> ranges_by_rank(const TokenShare& share) {  // in the order of a gathered tensor
  std::vector<Range> all;
  for (const auto& ranges : share.by_rank) all.insert(all.end(), ranges.begin(), ranges.end());
  return tidy_ranges(all);
}

bool runs_by_rank(const TokenShare& share) { return ranges_by_rank(share).size() == 1; }

// Puts tokens that stand rank after rank in the order of their positions.
at::Tensor tokens_in_order(const at::Tensor& x, const TokenShare& share, int64_t dim) {
  if (runs_by_rank(share)) return x;
  std::vector<std::pair<Range, int64_t>> places;  // and where each stands in x
  int64_t first = 0;
  for (const Range& range : ranges_by_rank(share)) {
    places.push_back({range, first});
    first += range.size();
  }
  std::sort(places.begin(), places.end());
  std::vector<at::Tensor> parts;
  for (const auto& [range, at] : places) parts.push_back(x.narrow(dim, at, range.size()));
  return at::cat(parts, dim);
}

at::Tensor attention_gathered(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const TokenShare& share, const comm::Group& context,
                              kernels::AttentionOptions options) {
  const comm::Counts counts = counts_by_rank(share);
  const at::Tensor keys = comm::all_gather(k, context, 2, counts);
  const at::Tensor values = comm::all_gather(v, context, 2, counts);
  const BlockHow how = {options, share.tokens, share.mine(), ranges_by_rank(share)};
  if (!options.causal) {
    if (options.drop.rate > 0) {
      options.drop.windows.push_back({2, share.tokens, how.queries});
      options.drop.windows.push_back({3, share.tokens, how.keys});
    }
    return kernels::attention(q, keys, values, options);
  }
  std::vector<AttentionBlock> own, others;
  int64_t first = 0;
  for (int rank = 0; rank < context.size(); ++rank) {
    auto& list = rank == share.rank ? own : others;
    for (AttentionBlock block :
         seen_blocks(share.mine(), share.by_rank[static_cast<size_t>(rank)], true)) {
      block.keys = {block.keys.begin + first, block.keys.end + first};
      list.push_back(block);
    }
    first += counts[static_cast<size_t>(rank)];
  }
  others = joined_blocks(std::move(others));
  own.insert(own.end(), others.begin(), others.end());
  return attention_by_blocks(q, keys, values, own, how);
}

// With fewer heads than ranks, or a number that they do not divide, heads of keys and values are
// repeated, as often as needed.
at::Tensor heads_for_ranks(const at::Tensor& x, int64_t query_heads, int ranks) {
  const int64_t heads = x.size(1), most = query_heads / heads;
  for (int64_t times = 1; times <= most; ++times)
    if (most % times == 0 && heads * times % ranks == 0)
      return times == 1 ? x : x.repeat_interleave(times, 1);
  return x;  // check_context_heads has refused this
}

// Dropout of the heads that are here after the exchange.
kernels::Drop drop_of_heads(kernels::Drop drop, int64_t heads, const comm::Group& context) {
  const int64_t each = heads / context.size();
  const Range mine = {each * context.rank(), each * (context.rank() + 1)};
  for (kernels::DropWindow& window : drop.windows) {
    if (window.dim != 1) continue;
    window.ranges = ranges_within(window.ranges, mine);
    return drop;
  }
  drop.windows.push_back({1, heads, {mine}});
  return drop;
}

at::Tensor attention_exchanged(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                               const TokenShare& share, const comm::Group& context,
                               kernels::AttentionOptions options) {
  if (!runs_by_rank(share))
    throw InternalError({.what = "all_to_all over tokens that do not stand rank after rank",
                         .why = "heads see the whole sample in order",
                         .fix = "call share_tokens with ContextMethod::all_to_all"});
  const int64_t heads = q.size(1);
  check_context_heads(heads, context, ContextMethod::all_to_all);
  const comm::Counts counts = counts_by_rank(share);
  const auto by_heads = [&](const at::Tensor& x) {
    return comm::all_to_all(x, context, 1, 2, counts);
  };
  if (options.drop.rate > 0) options.drop = drop_of_heads(options.drop, heads, context);
  const at::Tensor y =
      kernels::attention(by_heads(q), by_heads(heads_for_ranks(k, heads, context.size())),
                         by_heads(heads_for_ranks(v, heads, context.size())), options);
  return comm::all_to_all(y, context, 2, 1);
}

}  // namespace

int64_t TokenShare::count(int of_rank) const {
  return tokens_in(by_rank.at(static_cast<size_t>(of_rank)));
}

TokenShare share_tokens(int64_t tokens, const comm::Group& context, ContextMethod method,
                        bool causal) {
  const int ranks = context.size();
  check_context_tokens(tokens, ranks);
  TokenShare share = {.tokens = tokens, .by_rank = {}, .rank = context.rank()};
  const bool folded = method == ContextMethod::ring && causal && ranks > 1;
  const std::vector<Range> runs = even_runs(tokens, folded ? 2 * ranks : ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Range> mine = {runs[static_cast<size_t>(rank)]};
    if (folded) mine.push_back(runs[static_cast<size_t>(2 * ranks - 1 - rank)]);
    share.by_rank.push_back(tidy_ranges(mine));
  }
  return share;
}

void check_context_heads(int64_t heads, const comm::Group& context, ContextMethod method) {
  if (method != ContextMethod::all_to_all || heads % context.size() == 0) return;
  throw ConfigError({.what = fmt::format("mesh.context = {} does not divide {} heads of a rank",
                                         context.size(), heads),
                     .why = "parallel.context=all_to_all gives each rank of the context axis whole "
                            "attention heads",
                     .fix = "set parallel.context to gather or ring, or mesh.context to a divisor "
                            "of model.heads / mesh.tensor"});
}

at::Tensor take_tokens(const at::Tensor& x, const TokenShare& share, int64_t dim) {
  if (share.is_whole()) return x;
  std::vector<at::Tensor> parts;
  for (const Range& range : share.mine()) parts.push_back(x.narrow(dim, range.begin, range.size()));
  return parts.size() == 1 ? parts.front() : at::cat(parts, dim);
}

at::Tensor join_tokens(const at::Tensor& x, const TokenShare& share, const comm::Group& context,
                       int64_t dim) {
  if (share.is_whole()) return x;
  return tokens_in_order(comm::gather_from(x, context, dim, counts_by_rank(share)), share, dim);
}

at::Tensor positions_of(const TokenShare& share, const at::Device& device) {
  std::vector<at::Tensor> parts;
  const auto options = at::TensorOptions().dtype(c10::kLong).device(device);
  for (const Range& range : share.mine())
    parts.push_back(at::arange(range.begin, range.end, options));
  return parts.size() == 1 ? parts.front() : at::cat(parts);
}

at::Tensor context_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const TokenShare& share, const comm::Group& context,
                             const ContextAttentionOptions& options) {
  if (context.size() == 1) return kernels::attention(q, k, v, options.attention);
  switch (options.method) {
    case ContextMethod::ring:
      return ring_attention(q, k, v, share, context, options.attention);
    case ContextMethod::all_to_all:
      return attention_exchanged(q, k, v, share, context, options.attention);
    case ContextMethod::gather:
      break;
  }
  return attention_gathered(q, k, v, share, context, options.attention);
}

}  // namespace braid::parallel
