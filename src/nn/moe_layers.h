// SPDX-License-Identifier: BSD-3-Clause
// The layers within a mixture: its router, and MLPs side by side.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "braid/nn/moe.h"
#include "nn/moe_route.h"

namespace braid::nn {

// Throws ConfigError for options of a mixture that do not fit each other or the layout.
void check_moe(const MoeOptions& options, const Layout& layout);

// Scores of experts in fp32, or fp64 for fp64.
class RouterLayer : public Layer {
 public:
  RouterLayer(Scope scope, const MoeOptions& moe, int64_t width);
  // x between split regions -> scores of all tokens of the context rank.
  RouteScores forward(const at::Tensor& x, const Pass& pass) const;
  LayerRow row(int64_t tokens) const;
  at::Tensor weight, noise;

 private:
  at::Tensor jittered(const at::Tensor& x, const Pass& pass) const;
  MoeOptions moe_;
};

// MLPs [count, in, out], in two halves: between them and around them tokens travel. Each rank of
// tensor has a part of the hidden width, so that down() gives a part of the sum.
class ExpertLayer : public Layer {
 public:
  // spread: each rank of Layout::expert has some of the experts; else all have the same ones.
  ExpertLayer(Scope scope, int64_t count, int64_t hidden, const MixtureOptions& options,
              bool spread);
  at::Tensor up(const at::Tensor& x, const at::Tensor& offsets = {}) const;
  at::Tensor down(const at::Tensor& hidden, const at::Tensor& offsets = {}) const;
  LayerRow row(std::vector<int64_t> output, double rows) const;  // that go through an expert
  at::Tensor w1, w2, w3;

 private:
  at::Tensor product(const at::Tensor& x, const at::Tensor& w, const at::Tensor& offsets) const;
  int64_t count_, width_, hidden_;
  bool gated_;
};

}  // namespace braid::nn
