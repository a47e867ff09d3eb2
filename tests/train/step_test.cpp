// SPDX-License-Identifier: BSD-3-Clause
// Accumulation over micro-batches of any size gives the loss and the gradients of the whole batch.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>

#include <cmath>

#include "braid/train/step.h"
#include "train/run.h"

namespace braid::train {
namespace {

struct Pass1 {
  double loss = 0;
  int64_t weight = 0;
  std::map<std::string, at::Tensor> gradients;
};

Pass1 gradients_of(nn::Model& model, const data::Batch& batch, nn::Loss loss, int64_t micro) {
  optim::Optimizer optimizer(model.params(), {});
  Step step(model, optimizer, {.loss = loss, .micro_batch = micro});
  const StepResult result = step.gradients(batch, {.training = true, .seed = 5, .step = 2});
  Pass1 pass{.loss = result.loss.item<double>(), .weight = result.weight, .gradients = {}};
  for (const Param& param : model.params())
    pass.gradients[param.name] = param.tensor.grad().clone();
  optimizer.zero_grad();
  return pass;
}

void expect_any_micro_batch(nn::Model& model, const data::Batch& batch, nn::Loss loss) {
  const Pass1 all = gradients_of(model, batch, loss, 0);
  for (const int64_t micro : {1, 3, 5, 11, 100}) {
    const Pass1 parts = gradients_of(model, batch, loss, micro);
    EXPECT_NEAR(parts.loss / all.loss, 1, 1e-12) << micro;
    EXPECT_EQ(parts.weight, all.weight);
    for (const auto& [name, gradient] : all.gradients) {
      const double scale = gradient.abs().max().item<double>();
      const double off = parts.gradients.at(name).sub(gradient).abs().max().item<double>();
      EXPECT_LE(off, 1e-12 * std::max(scale, 1e-3)) << name << " with micro-batches of " << micro;
    }
  }
}

TEST(Accumulation, MlpWithDropout) {
  const RunOptions options =
      run_of(mlp_run, {"train.precision=fp64", "data.limit_train=11", "model.dropout=0.4"});
  const Splits splits = open_splits(options);
  expect_any_micro_batch(*build_model(options), whole(*splits.train), nn::Loss::cross_entropy);
}

TEST(Accumulation, VitWithDropout) {
  const RunOptions options =
      run_of(vit_run, {"train.precision=fp64", "data.samples=11", "model.dropout=0.2"});
  const Splits splits = open_splits(options);
  for (const nn::Loss loss : {nn::Loss::relative_l2, nn::Loss::l1, nn::Loss::mse})
    expect_any_micro_batch(*build_model(options), whole(*splits.train), loss);
}

// 11 samples whose number of counted targets differs: a mean of means would be wrong.
TEST(Accumulation, GptWithIgnoredTargets) {
  const RunOptions options = run_of(gpt_run, {"train.precision=fp64"});
  const data::Batch batch = whole(Ragged(11));
  EXPECT_EQ(batch.weights, (std::vector<int64_t>{8, 7, 6, 5, 4, 3, 2, 1, 8, 7, 6}));
  const std::unique_ptr<nn::Model> model = build_model(options);
  EXPECT_EQ(gradients_of(*model, batch, nn::Loss::cross_entropy, 4).weight, 57);
  expect_any_micro_batch(*model, batch, nn::Loss::cross_entropy);
}

// Four samples, once alone and once followed by two of padding.
struct Padding : testing::Test {
  Padding() {
    real.input = padded.input.narrow(0, 0, 4);
    real.target = padded.target.narrow(0, 0, 4);
    real.weights.resize(4);
    real.samples = padded.samples = 4;
    padded.weights[4] = padded.weights[5] = 0;
  }
  Pass1 pass(const data::Batch& batch, int64_t micro) {
    return gradients_of(*model, batch, nn::Loss::cross_entropy, micro);
  }

  RunOptions options = run_of(mlp_run, {"train.precision=fp64", "data.limit_train=6"});
  std::unique_ptr<nn::Model> model = build_model(options);
  data::Batch padded = whole(*open_splits(options).train);
  data::Batch real = padded;
};

TEST_F(Padding, WeighsNothing) {
  const Pass1 with = pass(padded, 2), without = pass(real, 2);
  EXPECT_EQ(with.loss, without.loss);
  expect_same_bits(with.gradients, without.gradients);
}

// Padding that does not fill a micro-batch of its own counts neither.
TEST_F(Padding, WithinAMicroBatchWeighsNothing) {
  const Pass1 without = pass(real, 0);
  for (const int64_t micro : {0, 3, 5}) {
    const Pass1 with = pass(padded, micro);
    EXPECT_NEAR(with.loss, without.loss, 1e-12) << micro;
    for (const auto& [name, gradient] : without.gradients)
      EXPECT_TRUE(with.gradients.at(name).allclose(gradient, 1e-12, 1e-14)) << name << micro;
  }
}

// Whole numbers add up exactly, so here even the bits agree.
TEST(Accumulation, BitEqualForWholeNumbers) {
  const std::unique_ptr<nn::Model> model =
      nn::make_mlp({.inputs = 2, .hidden = {}, .outputs = 1, .dropout = 0}, {});
  for (const Param& param : model->params()) {
    const c10::NoGradGuard no_grad;
    param.tensor.fill_(2);
  }
  data::Batch batch;
  batch.input = at::linspace(0, 31, 32).reshape({16, 2}).round();
  batch.target = at::full({16, 1}, 3.0);
  batch.samples = 16;
  batch.weights.assign(16, 1);
  const Pass1 all = gradients_of(*model, batch, nn::Loss::mse, 0);
  for (const int64_t micro : {1, 2, 4, 8}) {
    const Pass1 parts = gradients_of(*model, batch, nn::Loss::mse, micro);
    EXPECT_EQ(parts.loss, all.loss);
    expect_same_bits(parts.gradients, all.gradients);
  }
}

TEST(Step, ClippingReportsTheNormBefore) {
  const RunOptions options = run_of(mlp_run, {"model.dropout=0"});
  const Splits splits = open_splits(options);
  const std::unique_ptr<nn::Model> model = build_model(options);
  const data::Batch batch = whole(*splits.train);
  double squares = 0;
  for (const auto& [name, gradient] :
       gradients_of(*model, batch, nn::Loss::cross_entropy, 0).gradients)
    squares += gradient.to(at::kDouble).square().sum().item<double>();
  optim::Optimizer sgd(model->params(), {.name = optim::Algorithm::sgd});
  Step step(*model, sgd, {.loss = nn::Loss::cross_entropy, .clip = 1e-3});
  std::map<std::string, at::Tensor> before;
  for (const Param& param : model->params()) before[param.name] = param.tensor.detach().clone();
  const StepResult result = step.run(batch, {.training = true}, /*lr=*/1);
  EXPECT_NEAR(result.grad_norm.item<double>() / std::sqrt(squares), 1, 1e-5);
  double moved = 0;
  for (const Param& param : model->params())
    moved += param.tensor.detach().sub(before.at(param.name)).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(moved), 1e-3, 1e-6);  // lr 1 times a gradient of norm 1e-3
}

}  // namespace
}  // namespace braid::train
