// SPDX-License-Identifier: BSD-3-Clause
// Slots of experts. With a capacity every expert has as many for every sample; tokens take them in
// the order of the sample, first choices of all tokens before second ones. Without, tokens are
// sorted by expert.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "nn/moe_route.h"

namespace braid::nn {
namespace {

// ids [batch, n] in 0 ... kinds - 1 -> how often each occurs, [batch, kinds].
at::Tensor occurrences(const at::Tensor& ids, int64_t kinds) {
  return at::zeros({ids.size(0), kinds}, ids.options()).scatter_add_(1, ids, at::ones_like(ids));
}

// How many of the same id stand before each, in its row.
at::Tensor places_within(const at::Tensor& ids, const at::Tensor& counts) {
  const auto [sorted, order] = ids.sort(/*stable=*/true, 1, /*descending=*/false);
  const at::Tensor begins = counts.cumsum(1) - counts;
  const at::Tensor places = at::arange(ids.size(1), ids.options()) - begins.gather(1, sorted);
  return at::empty_like(ids).scatter_(1, order, places);
}

// The range of this rank's tokens that each belongs to: [tokens].
at::Tensor range_of_tokens(const parallel::TokenShare& share, const at::Tensor& like) {
  at::Tensor ranges = at::empty({share.count()}, like.options());
  for (int64_t number = 0, first = 0; const Range& range : share.mine()) {
    ranges.narrow(0, first, range.size()).fill_(number++);
    first += range.size();
  }
  return ranges;
}

// Choices of all ranks, by rank, choice and range of tokens: [ranks, batch, choices, ranges, ids].
struct ContextCounts {
  at::Tensor all;
  int64_t ranges = 0;  // of the rank that has most
};

ContextCounts counts_over_context(const at::Tensor& segments, const RouteWhere& where) {
  std::vector<int64_t> sizes = segments.sizes().vec();
  sizes.insert(sizes.begin(), where.context.size());
  const at::Tensor all = at::empty(sizes, segments.options());
  where.context.all_gather(all, segments.contiguous()).wait();
  return {all, segments.size(2)};
}

// What stands before the segment (choice, range) of this rank in the whole sample, less what stands
// before it on this rank: [batch, choices, ranges, ids].
at::Tensor shift_of_segments(const at::Tensor& segments, const RouteWhere& where) {
  const auto [all, ranges] = counts_over_context(segments, where);
  const at::Tensor by_choice = all.sum(at::IntArrayRef{0, 3});  // [batch, choices, ids]
  const at::Tensor earlier = by_choice.cumsum(1) - by_choice;
  std::vector<at::Tensor> shifts;
  const at::Tensor here = segments.flatten(1, 2);  // [batch, choices * ranges, ids]
  const at::Tensor local = (here.cumsum(1) - here).view_as(segments);
  for (int64_t mine = 0; mine < ranges; ++mine) {
    at::Tensor before = earlier.clone();
    const auto& own = where.tokens.mine();
    for (size_t rank = 0; rank < where.tokens.by_rank.size(); ++rank)
      for (size_t other = 0; other < where.tokens.by_rank[rank].size(); ++other)
        if (mine < static_cast<int64_t>(own.size()) &&
            where.tokens.by_rank[rank][other].begin < own[static_cast<size_t>(mine)].begin)
          before +=
              all.select(0, static_cast<int64_t>(rank)).select(2, static_cast<int64_t>(other));
    shifts.push_back(before - local.select(2, mine));
  }
  return at::stack(shifts, 2);
}

size_t most_ranges(const parallel::TokenShare& share) {
  size_t most = 1;
  for (const auto& ranges : share.by_rank) most = std::max(most, ranges.size());
  return most;
}

// Places among the choices of the whole sample, where some of its tokens are on other ranks.
// ids, local [batch, choices * tokens], choice by choice.
at::Tensor places_in_sample(const at::Tensor& ids, const at::Tensor& local, int64_t kinds,
                            const RouteWhere& where) {
  if (where.tokens.is_whole()) return local;
  const int64_t tokens = where.tokens.count(), choices = ids.size(1) / tokens;
  const auto ranges = static_cast<int64_t>(most_ranges(where.tokens));
  const at::Tensor choice = at::arange(choices, ids.options()).unsqueeze(1);  // of each entry
  const at::Tensor segment =
      (choice * ranges + range_of_tokens(where.tokens, ids)).view({1, choices * tokens});
  const at::Tensor key = segment * kinds + ids;
  const at::Tensor counts = occurrences(key, choices * ranges * kinds);
  const at::Tensor shift =
      shift_of_segments(counts.view({ids.size(0), choices, ranges, kinds}), where);
  return local + shift.flatten(1).gather(1, key);
}

// Choice by choice, the experts of all tokens; `experts` where none is taken: [batch, n].
at::Tensor experts_in_turn(const Choices& choices, int64_t experts) {
  at::Tensor ids = choices.index;
  if (choices.taken.defined()) ids = ids.masked_fill(choices.taken.logical_not(), experts);
  return ids.transpose(1, 2).flatten(1);
}

at::Tensor load_of(const at::Tensor& counts, const at::Tensor& dropped) {
  return at::cat({counts, dropped.to(counts.scalar_type()).view({1})});
}

// Where each choice of each token stands -> which token stands in each slot.
void fill_tokens(kernels::SlotMap& map) {
  const at::Tensor tokens = at::arange(map.tokens, map.slot.options()).unsqueeze(1);
  const at::Tensor all = at::full({map.slots + 1}, map.tokens, map.slot.options());
  map.token = all.scatter(0, map.slot.reshape({-1}), tokens.expand_as(map.slot).reshape({-1}))
                  .narrow(0, 0, map.slots);
}

// Slots in the order experts, samples, places.
Routes place_by_capacity(const Choices& choices, const MoeOptions& o, const RouteWhere& where) {
  const int64_t batch = choices.index.size(0), tokens = choices.index.size(1);
  const int64_t most = capacity_of(o, where.tokens.tokens), room = std::min(most, tokens);
  const at::Tensor ids = experts_in_turn(choices, o.experts);
  const at::Tensor counts = occurrences(ids, o.experts + 1);
  const at::Tensor local = places_within(ids, counts);
  const at::Tensor places = places_in_sample(ids, local, o.experts + 1, where);
  const at::Tensor chosen = ids.lt(o.experts), kept = chosen.logical_and(places.lt(most));
  Routes routes = {.gates = choices.gates.reshape({batch * tokens, -1}), .each = batch * room};
  routes.map = {.tokens = batch * tokens, .slots = o.experts * routes.each};
  const at::Tensor sample = at::arange(batch, ids.options()).unsqueeze(1);
  const at::Tensor slot =
      ((ids * batch + sample) * room + local).masked_fill(kept.logical_not(), routes.map.slots);
  routes.map.slot = slot.view({batch, -1, tokens}).transpose(1, 2).reshape({batch * tokens, -1});
  fill_tokens(routes.map);
  routes.load = load_of(counts.sum(0).narrow(0, 0, o.experts), chosen.sum() - kept.sum());
  return routes;
}

Routes place_sorted(const Choices& choices, const MoeOptions& o) {
  at::Tensor ids = choices.index;
  if (choices.taken.defined()) ids = ids.masked_fill(choices.taken.logical_not(), o.experts);
  const int64_t tokens = ids.size(0) * ids.size(1), k = ids.size(2);
  const at::Tensor flat = ids.reshape({1, tokens * k});
  const at::Tensor counts = occurrences(flat, o.experts + 1);
  const at::Tensor begins = counts.cumsum(1) - counts;
  at::Tensor slot = places_within(flat, counts) + begins.gather(1, flat);
  Routes routes = {.gates = choices.gates.reshape({tokens, k})};
  routes.map = {.tokens = tokens, .slots = tokens * k, .full = !choices.taken.defined()};
  if (choices.taken.defined()) slot = slot.masked_fill(flat.eq(o.experts), routes.map.slots);
  routes.map.slot = slot.view({tokens, k});
  fill_tokens(routes.map);
  routes.counts = counts.squeeze(0).narrow(0, 0, o.experts);
  routes.load = load_of(routes.counts, at::zeros({}, flat.options()));
  return routes;
}

// Tokens that no expert took are left out.
at::Tensor tokens_left_out(const at::Tensor& token, int64_t tokens) {
  const at::Tensor found = at::zeros({tokens + 1}, token.options()).scatter(0, token, 1);
  return tokens - found.narrow(0, 0, tokens).sum();
}

Routes place_chosen_tokens(const Choices& choices, const MoeOptions& o, const RouteWhere& where) {
  const int64_t batch = choices.index.size(0), tokens = where.tokens.count();
  const at::Tensor sample = at::arange(batch, choices.index.options()).view({batch, 1, 1});
  at::Tensor token = choices.index + sample * tokens, gates = choices.gates;
  at::Tensor taken = choices.taken;
  if (taken.defined()) {
    token = token.masked_fill(taken.logical_not(), batch * tokens);
    gates = gates * taken;
  }
  Routes routes = {.each = batch * choices.index.size(2)};
  routes.map = {.tokens = batch * tokens,
                .slots = o.experts * routes.each,
                .token = token.transpose(0, 1).reshape({-1}),
                .full = !taken.defined()};
  routes.gates = gates.transpose(0, 1).reshape({-1});
  const at::Tensor counts = routes.map.token.lt(routes.map.tokens).view({o.experts, -1}).sum(1);
  routes.load = load_of(counts, tokens_left_out(routes.map.token, routes.map.tokens));
  return routes;
}

}  // namespace

Routes place(const Choices& choices, const MoeOptions& o, const RouteWhere& where) {
  if (o.router == Router::expert_choice) return place_chosen_tokens(choices, o, where);
  return o.capacity ? place_by_capacity(choices, o, where) : place_sorted(choices, o);
}

}  // namespace braid::nn
