// SPDX-License-Identifier: BSD-3-Clause
// A model as a program that uses the library writes it: a torch module behind nn::Model.
#pragma once
#include <ATen/core/grad_mode.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <string>
#include <vector>

#include "braid/core/module.h"
#include "braid/core/rng.h"
#include "braid/data/loader.h"
#include "braid/nn/blocks.h"
#include "braid/nn/model.h"
#include "braid/train/session.h"

namespace braid::train {

struct OwnNet : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(2, 16));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(16));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(16, 2));
};

class OwnModelOfTest final : public nn::Model {
 public:
  explicit OwnModelOfTest(bool with_blocks = false) : with_blocks_(with_blocks) {
    const at::NoGradGuard no_grad;
    for (const Param& param : params())
      fill_normal(param.tensor, random_key(3, param.name), {.std = 0.5});
  }
  const std::string& name() const override { return name_; }
  std::vector<Param> params() const override { return named_params(*net); }
  at::Tensor forward(const at::Tensor& input, const nn::Pass& pass) override {
    net->train(pass.training);
    const auto first = [this](const at::Tensor& x) { return net->norm(net->first(x)).tanh(); };
    if (with_blocks_)
      return net->second(nn::run_blocks(pass, {{"first", nn::closing(first)}}, input));
    return net->second(first(input));
  }
  std::vector<nn::LayerRow> layers() const override { return {}; }
  std::vector<std::string> blocks() const override {
    return with_blocks_ ? std::vector<std::string>{"first"} : std::vector<std::string>();
  }
  std::shared_ptr<torch::nn::Module> module() const override { return net; }

  std::shared_ptr<OwnNet> net = std::make_shared<OwnNet>();

 private:
  bool with_blocks_;
  std::string name_ = "mine";
};

inline std::shared_ptr<const data::Source> own_data() {
  data::DataOptions spiral;
  spiral.kind = data::Kind::spiral;
  spiral.points = 80;
  return data::open_source(spiral, data::Split::train, 1);
}

inline RunOptions own_run(const std::string& dir, const std::string& precision = "fp32") {
  RunOptions run;
  run.run.dir = dir;
  run.train.steps = 4;
  run.train.global_batch = 16;
  run.train.loss = nn::Loss::cross_entropy;
  run.train.device = "cpu";
  run.train.precision = precision;
  run.optimizer.rule.name = optim::Algorithm::adam;
  run.optimizer.rule.lr = 1e-2;
  run.data.workers = 0;
  run.report.to = {};
  return run;
}

}  // namespace braid::train
