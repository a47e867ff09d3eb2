// SPDX-License-Identifier: BSD-3-Clause
#include "nn/moe_route.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "braid/core/error.h"
#include "nn/moe_random.h"

namespace braid::nn {
namespace {

// The k largest of the last dimension. Gradients go through what is gathered by the index.
at::Tensor best(const at::Tensor& scores, int64_t k) {
  return std::get<1>(scores.detach().topk(k, -1));
}

at::Tensor shares_of(const at::Tensor& gates) { return gates / gates.sum(-1, /*keepdim=*/true); }

void choose_second_at_random(Choices& choices, const RouteWhere& where) {
  if (!where.training) return;
  const at::Tensor gates = choices.gates.detach();
  const at::Tensor places = token_places(gates.size(0), where, gates.device());
  const at::Tensor drawn = uniform_at(places, where.key.with("second")).to(gates.scalar_type());
  choices.taken = at::ones_like(choices.index, c10::kBool);
  choices.taken.select(-1, 1).copy_(gates.select(-1, 1).mul(2).gt(drawn));
}

void choose_with_noise(Choices& choices, const RouteScores& scores, const MoeOptions& o,
                       const RouteWhere& where) {
  choices.noisy = scores.logits;
  if (where.training) {
    const int64_t batch = scores.logits.size(0), experts = scores.logits.size(2);
    const at::Tensor places = token_places(batch, where, scores.logits.device());
    const at::Tensor element = places.unsqueeze(2) * experts +
                               at::arange(experts, places.options());  // [batch, tokens, experts]
    const at::Tensor noise = normal_at(element, where.key.with("noise"));
    choices.noisy = scores.logits + noise.to(scores.logits.scalar_type()) * scores.spread;
  }
  choices.index = best(choices.noisy, o.choices());
  choices.gates = choices.noisy.gather(-1, choices.index).softmax(-1);
}

// Each expert takes the tokens of the sample that it likes best; those of other ranks of context
// are theirs.
void choose_tokens(Choices& choices, const MoeOptions& o, const RouteWhere& where) {
  const at::Tensor mine = choices.probabilities.detach();
  const at::Tensor all = parallel::join_tokens(mine, where.tokens, where.context, 1);
  const int64_t wanted = std::min(capacity_of(o, where.tokens.tokens), where.tokens.tokens);
  choices.index = best(all.transpose(1, 2), wanted);
  if (!where.tokens.is_whole()) {
    const at::Tensor chosen =
        at::zeros(all.transpose(1, 2).sizes(), mine.options()).scatter_(2, choices.index, 1);
    const at::Tensor here = parallel::take_tokens(chosen, where.tokens, 2);
    const auto [first, index] = here.topk(std::min(wanted, here.size(2)), -1);
    choices.index = index;
    choices.taken = first.gt(0);
  }
  choices.gates = choices.probabilities.transpose(1, 2).gather(2, choices.index);
}

}  // namespace

int64_t capacity_of(const MoeOptions& o, int64_t tokens) {
  const double even = static_cast<double>(tokens) / static_cast<double>(o.experts);
  const double wanted = even * o.capacity.value_or(1) * static_cast<double>(o.choices());
  const auto rows = static_cast<int64_t>(std::ceil(wanted - 1e-9));  // 1.1 * 10 is above 11
  return std::max(rows, o.min_capacity);
}

at::Tensor token_places(int64_t batch, const RouteWhere& where, const c10::Device& device) {
  const at::Tensor tokens = parallel::positions_of(where.tokens, device);
  const at::Tensor samples =
      at::arange(where.first_sample, where.first_sample + batch, tokens.options());
  return samples.unsqueeze(1) * where.tokens.tokens + tokens;
}

Choices choose(const RouteScores& scores, const MoeOptions& o, const RouteWhere& where) {
  Choices choices = {.probabilities = scores.logits.softmax(-1)};
  switch (o.router) {
    case Router::noisy_top_k:
      choose_with_noise(choices, scores, o, where);
      return choices;
    case Router::expert_choice:
      choose_tokens(choices, o, where);
      return choices;
    case Router::switch_top_1:
    case Router::gshard:
    case Router::top_k:
      break;
  }
  choices.index = best(scores.logits, o.choices());
  choices.gates = choices.probabilities.gather(-1, choices.index);
  const bool adds_up = o.router == Router::gshard || (o.router == Router::top_k && o.normalize);
  if (adds_up) choices.gates = shares_of(choices.gates);
  if (o.router == Router::gshard) choose_second_at_random(choices, where);
  return choices;
}

}  // namespace braid::nn
