// SPDX-License-Identifier: BSD-3-Clause
// A mixture of experts written out token by token: what a layer of braid is compared with.
#pragma once
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "braid/nn/options.h"

namespace braid::test {

struct NaiveMixture {
  nn::MoeOptions moe;
  std::map<std::string, at::Tensor> weights = {};  // by name within the mixture
  std::vector<int64_t> load = {};
  int64_t dropped = 0;
  double aux = 0;  // sum over samples, without its weight

  at::Tensor mlp(const std::string& part, int64_t expert, const at::Tensor& x) const {
    const at::Tensor h = x.matmul(weights.at(part + ".w1")[expert]);
    const auto gate = weights.find(part + ".w3");
    const at::Tensor hidden = gate == weights.end()
                                  ? at::gelu(h, "tanh")
                                  : at::silu(h).mul(x.matmul(gate->second[expert]));
    return hidden.matmul(weights.at(part + ".w2")[expert]);
  }

  int64_t room(int64_t tokens) const {
    if (!moe.capacity && moe.router != nn::Router::expert_choice) return tokens;
    const double even = static_cast<double>(tokens) / static_cast<double>(moe.experts);
    const double wanted = even * moe.capacity.value_or(1) * static_cast<double>(moe.choices());
    return std::max(static_cast<int64_t>(std::ceil(wanted)), moe.min_capacity);
  }

  // Experts of a token, best first.
  std::vector<int64_t> experts_of(const at::Tensor& scores) const {
    const at::Tensor order = scores.argsort(-1, /*descending=*/true);
    std::vector<int64_t> experts;
    for (int64_t i = 0; i < moe.choices(); ++i) experts.push_back(order[i].item<int64_t>());
    return experts;
  }

  at::Tensor gate(const at::Tensor& p, const std::vector<int64_t>& experts, size_t choice) const {
    const at::Tensor mine = p[experts[choice]];
    const bool shares =
        moe.router == nn::Router::gshard || moe.router == nn::Router::noisy_top_k || moe.normalize;
    if (moe.router == nn::Router::switch_top_1 || !shares) return mine;
    at::Tensor sum = p[experts[0]];
    for (size_t i = 1; i < experts.size(); ++i) sum = sum.add(p[experts[i]]);
    return mine.div(sum);
  }

  at::Tensor by_tokens(const at::Tensor& x, const at::Tensor& p) {
    const int64_t tokens = x.size(0);
    std::vector<at::Tensor> out(static_cast<size_t>(tokens), at::zeros({x.size(1)}, x.options()));
    std::vector<std::vector<int64_t>> chosen;
    for (int64_t t = 0; t < tokens; ++t) chosen.push_back(experts_of(p[t]));
    std::vector<int64_t> used(static_cast<size_t>(moe.experts), 0), asked = used;
    for (size_t choice = 0; choice < chosen[0].size(); ++choice)
      for (size_t t = 0; t < chosen.size(); ++t) {
        const int64_t expert = chosen[t][choice];
        const auto e = static_cast<size_t>(expert), row = static_cast<size_t>(t);
        ++asked[e];
        if (used[e]++ >= room(tokens)) {
          ++dropped;
          continue;
        }
        const auto at = static_cast<int64_t>(t);
        out[row] = out[row].add(mlp("experts", expert, x[at]).mul(gate(p[at], chosen[t], choice)));
      }
    for (size_t e = 0; e < asked.size(); ++e) {
      load[e] += asked[e];
      aux += static_cast<double>(moe.experts * asked[e]) *
             p.select(1, static_cast<int64_t>(e)).sum().item<double>() /
             static_cast<double>(moe.choices() * tokens * tokens);
    }
    return at::stack(out);
  }

  at::Tensor by_experts(const at::Tensor& x, const at::Tensor& p) {
    at::Tensor out = at::zeros_like(x);
    std::vector<bool> seen(static_cast<size_t>(x.size(0)), false);
    for (int64_t e = 0; e < moe.experts; ++e) {
      const at::Tensor order = p.select(1, e).argsort(0, /*descending=*/true);
      for (int64_t i = 0; i < std::min(room(x.size(0)), x.size(0)); ++i) {
        const int64_t t = order[i].item<int64_t>();
        at::Tensor one = at::zeros({x.size(0), 1}, x.options());
        one[t] = 1;
        out = out.add(one.mul(mlp("experts", e, x[t]).mul(p[t][e])));
        seen[static_cast<size_t>(t)] = true;
        ++load[static_cast<size_t>(e)];
      }
    }
    for (const bool found : seen) dropped += !found;
    return out;
  }

  at::Tensor forward(const at::Tensor& x) {  // [batch, tokens, width]
    load.assign(static_cast<size_t>(moe.experts), 0);
    std::vector<at::Tensor> samples;
    for (int64_t b = 0; b < x.size(0); ++b) {
      const at::Tensor p = x[b].matmul(weights.at("router.weight").t()).softmax(-1);
      const bool experts = moe.router == nn::Router::expert_choice;
      at::Tensor y = experts ? by_experts(x[b], p) : by_tokens(x[b], p);
      if (moe.shared > 0) y = y.add(mlp("shared", 0, x[b]));
      samples.push_back(y);
    }
    return at::stack(samples);
  }
};

}  // namespace braid::test
