// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/moe.h"

#include <ATen/TensorOperators.h>
#include <fmt/format.h>

#include "braid/parallel/expert.h"
#include "braid/parallel/tensor.h"
#include "nn/moe_layers.h"

namespace braid::nn {
namespace {

RouteWhere where_of(const at::Tensor& logits, const Layer& layer, const Pass& pass) {
  RouteWhere where = {
      .tokens = pass.tokens,
      .context = layer.scope().build.layout.context,
      .key = random_key(pass.seed, layer.path()).with(static_cast<uint64_t>(pass.step)),
      .first_sample = pass.first_sample,
      .training = pass.training};
  const int64_t tokens = logits.size(1);
  if (where.tokens.tokens == 0) where.tokens = {.tokens = tokens, .by_rank = {{{0, tokens}}}};
  return where;
}

void note_load(Extras& extras, const std::string& layer, const at::Tensor& load) {
  if (recomputing()) return;  // counted by the first pass
  at::Tensor& entry = extras.loads[layer];
  entry = entry.defined() ? entry + load : load;
}

// What travels. A choice that was not taken does not, and comes last in the order of slots.
parallel::ExpertRows rows_to_travel(Routes& routes, const comm::Group& axis, int64_t experts) {
  if (routes.each > 0) return parallel::even_rows(axis, experts, routes.each);
  const parallel::ExpertRows rows = parallel::counted_rows(axis, routes.counts, routes.map.slots);
  const int64_t sent = rows.rows_sent();
  if (sent == routes.map.slots) return rows;
  routes.map.slots = sent;
  routes.map.token = routes.map.token.narrow(0, 0, sent);
  routes.map.slot = routes.map.slot.clamp_max(sent);
  return rows;
}

}  // namespace

int64_t block_number(const std::string& path) {
  return std::stoll(path.substr(path.rfind('.') + 1));
}

Mixture::Mixture(Scope where, const MoeOptions& moe, const MixtureOptions& options)
    : Layer(std::move(where)),
      moe_(moe),
      options_(options),
      drop_(scope(), "dropout", options.dropout) {
  check_moe(moe, layout());
  const int64_t hidden = moe.hidden > 0 ? moe.hidden : options.hidden;
  router_ = child<RouterLayer>("router", moe, options.width);
  experts_ = child<ExpertLayer>("experts", moe.experts, hidden, options, /*spread=*/true);
  if (moe.shared > 0)
    shared_ = child<ExpertLayer>("shared", 1, moe.shared * hidden, options, /*spread=*/false);
}

at::Tensor Mixture::forward(const at::Tensor& x, const Pass& pass) const {
  const auto here = enter();
  const RouteScores scores = router_->forward(x, pass);
  const RouteWhere where = where_of(scores.logits, *this, pass);
  const Choices choices = choose(scores, moe_, where);
  Routes routes = place(choices, moe_, where);
  if (pass.training && pass.extras != nullptr) {
    const double share = 1.0 / layout().tensor.size();  // each of its ranks adds this much
    routes.gates = with_losses(routes.gates, route_losses(scores, choices, moe_, where),
                               *pass.extras, path(), share);
    note_load(*pass.extras, path(), routes.load);
  }
  const at::Tensor tokens = to_split(x, pass);  // [batch, tokens, width]
  const at::Tensor mixed = through_experts(tokens.flatten(0, 1), routes);
  return drop_(parallel::leave_split(mixed.view(tokens.sizes()), split_axis()), pass);
}

// Shared experts are computed while tokens travel: the first half on the way there, the second on
// the way back, and so in the backward pass.
at::Tensor Mixture::through_experts(const at::Tensor& x, Routes& routes) const {
  const parallel::ExpertRows rows = rows_to_travel(routes, layout().expert, moe_.experts);
  parallel::Travel there = parallel::to_experts(kernels::to_slots(x, routes.map), rows);
  at::Tensor aside;
  if (shared_ != nullptr) aside = shared_->up(x.unsqueeze(0));
  const at::Tensor hidden = experts_->up(there.arrive(), rows.offsets);
  parallel::Travel back = parallel::from_experts(experts_->down(hidden, rows.offsets), rows);
  if (shared_ != nullptr) aside = shared_->down(aside).squeeze(0);
  const at::Tensor mixed = kernels::from_slots(back.arrive(), routes.gates, routes.map);
  return aside.defined() ? mixed + aside : mixed;
}

void Mixture::rows(std::vector<LayerRow>& table, int64_t tokens) const {
  const bool padded = moe_.capacity || moe_.router == Router::expert_choice;
  const int64_t routed =
      padded ? moe_.experts * std::min(capacity_of(moe_, tokens), tokens) : tokens * moe_.choices();
  table.push_back(router_->row(tokens));
  table.push_back(experts_->row({tokens, options_.width}, static_cast<double>(routed)));
  if (shared_ != nullptr)
    table.push_back(shared_->row({tokens, options_.width}, static_cast<double>(tokens)));
}

}  // namespace braid::nn
