// SPDX-License-Identifier: BSD-3-Clause
#include "nn/moe_layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/softplus.h>
#include <fmt/format.h>

#include "braid/kernels/activation.h"
#include "braid/kernels/grouped.h"
#include "braid/parallel/tensor.h"
#include "nn/moe_random.h"

namespace braid::nn {
namespace {

constexpr double smallest_spread = 1e-2;  // of noise: loads are divided by it

// Positions of a list of ranges: [count] int64.
at::Tensor positions_in(const std::vector<Range>& ranges, const at::Tensor& like) {
  std::vector<at::Tensor> parts;
  const auto options = like.options().dtype(c10::kLong);
  for (const Range& range : ranges) parts.push_back(at::arange(range.begin, range.end, options));
  return at::cat(parts);
}

std::vector<Cut> cuts_of(int64_t dim, int64_t size, const comm::Group& group) {
  if (group.size() == 1) return {};
  return {{dim, parallel::split_ranges(size, group)}};
}

}  // namespace

RouterLayer::RouterLayer(Scope scope, const MoeOptions& moe, int64_t width)
    : Layer(std::move(scope)), moe_(moe) {
  weight = param("weight", {moe.experts, width}, Init::normal(0.02), replicated());
  // Noise begins with the same size for all experts.
  if (moe.router == Router::noisy_top_k)
    noise = param("noise", {moe.experts, width}, Init::zeros(), replicated());
}

at::Tensor RouterLayer::jittered(const at::Tensor& x, const Pass& pass) const {
  if (moe_.jitter == 0 || !pass.training) return x;
  const HeldTokens held = tokens_between_splits(layout(), pass);
  const at::Tensor tokens =
      held.whole == 0 ? positions_in({{0, x.size(1)}}, x) : positions_in(held.ranges, x);
  const int64_t whole = held.whole == 0 ? x.size(1) : held.whole, width = x.size(2);
  const at::Tensor samples =
      at::arange(pass.first_sample, pass.first_sample + x.size(0), tokens.options());
  const at::Tensor places = samples.unsqueeze(1) * whole + tokens;
  const at::Tensor element = places.unsqueeze(2) * width + at::arange(width, tokens.options());
  const RandomKey key =
      random_key(pass.seed, path()).with(static_cast<uint64_t>(pass.step)).with("jitter");
  const at::Tensor factor = uniform_at(element, key).mul_(2 * moe_.jitter).add_(1 - moe_.jitter);
  return x * factor.to(x.scalar_type());
}

RouteScores RouterLayer::forward(const at::Tensor& x, const Pass& pass) const {
  const auto here = enter();
  const auto dtype = compute() == c10::kDouble ? c10::kDouble : c10::kFloat;
  const at::Tensor input = jittered(x.to(dtype), pass);
  // Gates of a rank meet a part of the experts' output, so the gradients of scores are summed.
  const parallel::SplitAxis axis = {.group = layout().tensor, .sequence = layout().sequence};
  const int64_t tokens = pass.tokens.tokens == 0 ? x.size(1) : pass.tokens.count();
  const auto scored = [&](const at::Tensor& w) {
    return parallel::enter_split(at::linear(input, w.to(dtype)), axis, tokens);
  };
  RouteScores scores = {.logits = scored(weight)};
  if (noise.defined()) scores.spread = at::softplus(scored(noise)) + smallest_spread;
  return scores;
}

LayerRow RouterLayer::row(int64_t tokens) const {
  const double products = 2.0 * static_cast<double>(tokens) * static_cast<double>(weight.numel());
  const double times = noise.defined() ? 2 : 1;
  return Layer::row(fmt::format("Router over {} experts", moe_.experts), {tokens, moe_.experts},
                    times * products);
}

ExpertLayer::ExpertLayer(Scope scope, int64_t count, int64_t hidden, const MixtureOptions& o,
                         bool spread)
    : Layer(std::move(scope)), count_(count), width_(o.width), hidden_(hidden), gated_(o.gated) {
  const comm::Group &expert = layout().expert, &tensor = layout().tensor;
  const auto part = [&](int64_t hidden_dim) {
    ParamPart held = {.cuts = spread ? cuts_of(0, count, expert) : std::vector<Cut>{},
                      .repeated = !spread && expert.rank() > 0,
                      .expert = spread && expert.size() > 1};
    for (Cut& cut : cuts_of(hidden_dim, hidden, tensor)) held.cuts.push_back(std::move(cut));
    return held;
  };
  w1 = param("w1", {count, width_, hidden}, Init::normal(o.std), part(2));
  w2 = param("w2", {count, hidden, width_}, Init::normal(o.out_std), part(1));
  if (gated_) w3 = param("w3", {count, width_, hidden}, Init::normal(o.std), part(2));
}

at::Tensor ExpertLayer::product(const at::Tensor& x, const at::Tensor& w,
                                const at::Tensor& offsets) const {
  return kernels::grouped_product(x,
                                  {.weight = cast(w), .offsets = offsets, .later = layout().later});
}

at::Tensor ExpertLayer::up(const at::Tensor& x, const at::Tensor& offsets) const {
  const auto here = enter();
  const at::Tensor h = product(x, w1, offsets);
  if (!gated_) return kernels::activated({kernels::Activation::gelu_tanh, h});
  return kernels::activated({kernels::Activation::swiglu, h, product(x, w3, offsets)});
}

at::Tensor ExpertLayer::down(const at::Tensor& hidden, const at::Tensor& offsets) const {
  const auto here = enter();
  return product(hidden, w2, offsets);
}

LayerRow ExpertLayer::row(std::vector<int64_t> output, double rows) const {
  const double one = 2.0 * static_cast<double>(width_) * static_cast<double>(hidden_);
  return Layer::row(fmt::format("{} experts {} -> {} -> {}", count_, width_, hidden_, width_),
                    std::move(output), rows * one * (gated_ ? 3 : 2));
}

}  // namespace braid::nn
