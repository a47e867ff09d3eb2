// SPDX-License-Identifier: BSD-3-Clause
// A mixture of experts (heavy header): a router sends each token through some of many MLPs. Experts
// are spread over Layout::expert, their hidden width over Layout::tensor; tokens travel by
// all-to-all, while the experts that all tokens share are computed.
//
//   mlp = child<nn::Mixture>("mlp", o.moe, nn::MixtureOptions{.width = 768, .hidden = 3072});
//   y = y + mlp->forward(norm->forward(y), pass);
//
// Parameters: router.weight [experts, width] (and router.noise), experts.w1 [experts, width,
// hidden], experts.w2 [experts, hidden, width], with a gate experts.w3 like w1; shared.w1 ... are
// those of the shared experts, as one MLP. There are no biases.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "braid/nn/layers.h"
#include "braid/nn/options.h"

namespace braid::nn {

// 3 of "transformer.h.3".
int64_t block_number(const std::string& path);

struct MixtureOptions {
  int64_t width = 0;
  int64_t hidden = 0;     // of the MLP in whose place it stands
  bool gated = false;     // (silu(x w1) * x w3) w2 as in Llama, instead of gelu(x w1) w2
  double std = 0.02;      // of initial weights
  double out_std = 0.02;  // of w2
  double dropout = 0;     // after it
};

class RouterLayer;
class ExpertLayer;
struct Routes;

class Mixture : public Layer {
 public:
  // Throws ConfigError for options that do not fit each other or the layout.
  Mixture(Scope scope, const MoeOptions& moe, const MixtureOptions& options);
  // x [batch, tokens, width] as it stands between split regions; so is the result. Notes losses and
  // loads in pass.extras.
  at::Tensor forward(const at::Tensor& x, const Pass& pass) const;
  void rows(std::vector<LayerRow>& table, int64_t tokens) const;

 private:
  at::Tensor through_experts(const at::Tensor& x, Routes& routes) const;  // [tokens, width]
  MoeOptions moe_;
  MixtureOptions options_;
  std::shared_ptr<RouterLayer> router_;
  std::shared_ptr<ExpertLayer> experts_;
  std::shared_ptr<ExpertLayer> shared_;  // null: none
  Dropout drop_;
};

}  // namespace braid::nn
