// SPDX-License-Identifier: BSD-3-Clause
// Losses that keep experts evenly used and the router's scores small. Each is that of a sample,
// whose tokens may be spread over context.
#include <ATen/TensorOperators.h>
#include <ATen/core/custom_class.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/special_ndtr.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "braid/comm/differentiable.h"
#include "braid/nn/model.h"
#include "nn/moe_route.h"

namespace braid::nn {
namespace {

// The squared coefficient of variation of each row: 0 if all its numbers are equal.
at::Tensor squared_variation(const at::Tensor& x) {
  const at::Tensor mean = x.mean(-1);
  const at::Tensor variance = (x - mean.unsqueeze(-1)).square().mean(-1);
  return variance / (mean.square() + 1e-10);
}

// How many tokens of each sample chose each expert, on all ranks: [batch, experts].
at::Tensor choice_counts(const Choices& choices, const RouteWhere& where) {
  const at::Tensor flat = choices.index.flatten(1), like = choices.probabilities.detach();
  at::Tensor counts = at::zeros({flat.size(0), like.size(2)}, like.options());
  counts.scatter_add_(1, flat, at::ones_like(flat, like.options()));
  where.context.all_reduce(counts).wait();
  return counts;
}

// experts / (k tokens^2) sum_i (sum of probabilities of i) (tokens that chose i): 1 if even.
at::Tensor aux_loss(const Choices& choices, const RouteWhere& where) {
  const auto experts = static_cast<double>(choices.probabilities.size(2));
  const auto k = static_cast<double>(choices.index.size(2));
  const auto tokens = static_cast<double>(where.tokens.tokens);
  const at::Tensor likely = comm::reduce_from(choices.probabilities.sum(1), where.context);
  return (likely * choice_counts(choices, where)).sum(1) * (experts / (k * tokens * tokens));
}

at::Tensor z_loss(const RouteScores& scores, const RouteWhere& where) {
  const at::Tensor squares = scores.logits.logsumexp(-1).square().sum(1);
  return comm::reduce_from(squares, where.context) / static_cast<double>(where.tokens.tokens);
}

at::Tensor importance_loss(const Choices& choices, const RouteWhere& where) {
  const at::Tensor all = at::zeros_like(choices.noisy).scatter(2, choices.index, choices.gates);
  return squared_variation(comm::reduce_from(all.sum(1), where.context));
}

// How likely each expert is among the first k if its noise is drawn again: it must beat the k-th of
// the others.
at::Tensor load_loss(const RouteScores& scores, const Choices& choices, const RouteWhere& where) {
  const int64_t k = choices.index.size(2), experts = scores.logits.size(2);
  if (k == experts) return squared_variation(at::ones_like(scores.logits).sum(1)) * 0;
  const at::Tensor best = std::get<0>(choices.noisy.topk(k + 1, -1));
  const at::Tensor kth = best.narrow(-1, k - 1, 1), next = best.narrow(-1, k, 1);
  const at::Tensor to_beat = at::where(choices.noisy.detach().gt(next.detach()), next, kth);
  const at::Tensor likely = at::special_ndtr((scores.logits - to_beat) / scores.spread);
  return squared_variation(comm::reduce_from(likely.sum(1), where.context));
}

struct HeldExtras : torch::CustomClassHolder {
  HeldExtras(const Extras& given, double part) : extras(given), share(part) {}
  const Extras& extras;
  double share;
};

struct WithLoss : torch::autograd::Function<WithLoss> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& loss, const Extras& extras, double share) {
    context->saved_data["extras"] =
        c10::IValue::make_capsule(c10::make_intrusive<HeldExtras>(extras, share));
    context->save_for_backward({loss});
    return x.view_as(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto capsule = context->saved_data.at("extras").toCapsule();
    const auto& held = static_cast<const HeldExtras&>(*capsule);
    const at::Tensor loss = context->get_saved_variables()[0], &scale = held.extras.scale;
    at::Tensor weight = at::zeros_like(loss).fill_(held.extras.weight * held.share);
    if (scale.defined()) weight = weight * scale.to(weight.scalar_type());
    return {grads[0], weight, {}, {}};
  }
};

void note(std::map<std::string, at::Tensor>& table, const std::string& name, const at::Tensor& x) {
  if (recomputing()) return;  // counted by the first pass
  at::Tensor& entry = table[name];
  entry = entry.defined() ? entry + x : x;
}

}  // namespace

RouteLosses route_losses(const RouteScores& scores, const Choices& choices, const MoeOptions& o,
                         const RouteWhere& where) {
  RouteLosses losses;
  const bool noisy = o.router == Router::noisy_top_k;
  const bool balanced = o.router == Router::expert_choice;  // whatever the scores are
  if (!noisy && !balanced && o.aux_loss > 0) losses["aux"] = o.aux_loss * aux_loss(choices, where);
  if (o.z_loss > 0) losses["z"] = o.z_loss * z_loss(scores, where);
  if (noisy && o.importance_loss > 0)
    losses["importance"] = o.importance_loss * importance_loss(choices, where);
  if (noisy && o.load_loss > 0) losses["load"] = o.load_loss * load_loss(scores, choices, where);
  return losses;
}

at::Tensor with_losses(const at::Tensor& x, const RouteLosses& losses, Extras& extras,
                       const std::string& layer, double share) {
  at::Tensor sum;
  for (const auto& [name, of_all] : losses) {
    const int64_t real = extras.samples < 0 ? of_all.size(0) : extras.samples;
    const at::Tensor by_sample = of_all.narrow(0, 0, real);
    note(extras.losses, fmt::format("{}.{}", layer, name), by_sample.detach().sum());
    const at::Tensor mean = by_sample.sum() / static_cast<double>(std::max<int64_t>(real, 1));
    sum = sum.defined() ? sum + mean : mean;
  }
  return sum.defined() ? WithLoss::apply(x, sum, extras, share) : x;
}

}  // namespace braid::nn
