// SPDX-License-Identifier: BSD-3-Clause
// A small mixture alone, for tests: its layer, its parameters by name, and what a pass over it
// gives.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/nn/moe.h"
#include "nn/module_model.h"
#include "support/drawn.h"

namespace braid::test {

inline constexpr int64_t moe_width = 6, moe_hidden = 5, moe_tokens = 8;

// The mixture as a model of its own.
struct MixtureModule : nn::Layer {
  MixtureModule(nn::Scope where, const nn::MoeOptions& moe, const nn::MixtureOptions& options)
      : Layer(std::move(where)), mlp(child<nn::Mixture>("mlp", moe, options)) {}
  at::Tensor forward(const at::Tensor& x, const nn::Pass& pass) const {
    return mlp->forward(x, pass);
  }
  std::vector<nn::LayerRow> layers() const {
    std::vector<nn::LayerRow> table;
    mlp->rows(table, moe_tokens);
    return table;
  }
  std::vector<std::string> blocks() const { return {}; }
  std::shared_ptr<nn::Mixture> mlp;
};

inline std::unique_ptr<nn::Model> mixture(const nn::MoeOptions& moe, bool gated = false,
                                          const nn::Layout& layout = {},
                                          const std::string& precision_name = "fp64") {
  nn::Build build = {.seed = 5, .precision = precision(precision_name), .layout = layout};
  const nn::MixtureOptions options = {
      .width = moe_width, .hidden = moe_hidden, .gated = gated, .std = 0.4, .out_std = 0.4};
  auto module = std::make_shared<MixtureModule>(nn::Scope{build}, moe, options);
  auto model = std::make_unique<nn::ModuleModel<MixtureModule>>("mixture", module);
  // Routers begin small; here their scores differ as those of trained ones do.
  const at::NoGradGuard no_grad;
  for (const Param& param : model->params()) {
    if (param.name == "mlp.router.weight") param.tensor.mul_(40);
    if (param.name == "mlp.router.noise") fill_normal(param.tensor, random_key(1, "noise"));
  }
  return model;
}

inline std::map<std::string, at::Tensor> gradients_of(const nn::Model& model) {
  std::map<std::string, at::Tensor> found;
  for (const Param& param : model.params()) found[param.name] = param.tensor.grad();
  return found;
}

struct MixtureOutcome {
  at::Tensor output, input_gradient;
  std::map<std::string, at::Tensor> gradients;
  nn::Extras extras = {};
};

// A pass whose loss weighs the outputs by `weigh`, which has the shape of x.
inline MixtureOutcome pass_over(nn::Model& model, const at::Tensor& x, const at::Tensor& weigh,
                                nn::Pass pass = {.training = true, .seed = 3, .step = 4},
                                double share = 1) {
  MixtureOutcome outcome;
  const at::Tensor input = x.detach().clone().requires_grad_();
  outcome.extras.weight = share;
  pass.extras = &outcome.extras;
  const at::Tensor output = model.forward(input, pass);
  output.mul(weigh).sum().backward();
  outcome.output = output.detach();
  outcome.input_gradient = input.grad();
  outcome.gradients = gradients_of(model);
  return outcome;
}

inline double farthest(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes()) return 1e300;
  return a.numel() == 0 ? 0 : a.sub(b).abs().max().item<double>();
}

}  // namespace braid::test
