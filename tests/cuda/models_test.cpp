// SPDX-License-Identifier: BSD-3-Clause
// Every reference model takes the same training steps on the GPU as on the CPU, in every precision.
#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "braid/nn/options.h"
#include "braid/optim/optimizer.h"
#include "braid/train/step.h"
#include "support/cuda.h"

namespace braid {
namespace nn {

// In the namespace of ModelName, where gtest looks for it.
void PrintTo(ModelName name, std::ostream* out) {
  static constexpr const char* words[] = {"mlp", "vit", "swinir", "gpt", "llama"};
  *out << words[static_cast<size_t>(name)];
}

}  // namespace nn
namespace {

struct Case {
  nn::ModelOptions model;
  nn::Loss loss;
  data::Batch batch;
};

nn::ModelOptions tiny(nn::ModelName name) {
  nn::ModelOptions options;
  options.name = name;
  options.vit = {.image = {16, 32},
                 .patch = 4,
                 .channels_in = 3,
                 .channels_out = 3,
                 .width = 32,
                 .depth = 2,
                 .heads = 4};
  options.swinir = {.width = 24, .depths = {2, 2}, .heads = {2, 2}};
  options.gpt = {.vocabulary = 96, .sequence = 32, .layers = 2, .heads = 2, .width = 32};
  options.llama = {.vocabulary = 96,
                   .sequence = 32,
                   .layers = 2,
                   .heads = 4,
                   .kv_heads = 2,
                   .width = 32,
                   .hidden = 64};
  options.mlp = {.dropout = 0.2};
  return options;
}

Case case_of(nn::ModelName name) {
  Case result{.model = tiny(name), .loss = nn::Loss::mse, .batch = {}};
  switch (name) {
    case nn::ModelName::vit:
      result.loss = nn::Loss::relative_l2;
      result.batch.input = at::randn({4, 3, 16, 32});
      result.batch.target = at::randn({4, 3, 16, 32});
      break;
    case nn::ModelName::swinir:
      result.loss = nn::Loss::l1;
      result.batch.input = at::randn({4, 3, 20, 16}).add_(10);
      result.batch.target = at::randn({4, 3, 40, 32}).add_(10);
      break;
    case nn::ModelName::own:  // a program's model: none of these tests
    case nn::ModelName::mlp:
      result.loss = nn::Loss::cross_entropy;
      result.batch.input = at::randn({4, 2});
      result.batch.target = at::randint(2, {4}, at::kLong);
      break;
    case nn::ModelName::gpt:
    case nn::ModelName::llama:
      result.loss = nn::Loss::cross_entropy;
      result.batch.input = at::randint(96, {4, 32}, at::kLong);
      result.batch.target = at::randint(96, {4, 32}, at::kLong);
  }
  result.batch.samples = 4;
  result.batch.weights = {1, 1, 1, 1};
  return result;
}

// Losses of three SGD steps.
std::vector<double> losses(const Case& given, const std::string& policy, c10::Device device) {
  const bool narrow = policy == "bf16_stream";
  Precision numbers = precision(narrow ? "bf16" : policy);
  if (narrow) numbers.stream = c10::kBFloat16;
  const auto model =
      nn::make_model(given.model, {.seed = 3, .precision = numbers, .device = device});
  optim::Optimizer sgd(model->params(), {.name = optim::Algorithm::sgd, .lr = 0.05},
                       numbers.master);
  std::optional<optim::LossScaler> scaler;
  if (numbers.scaled_loss) scaler.emplace(optim::ScalerOptions{.initial = 1024}, device);
  train::Step step(*model, sgd, {.loss = given.loss, .micro_batch = 2, .clip = 1},
                   scaler ? &*scaler : nullptr);
  data::Batch batch = given.batch;
  batch.input = batch.input.to(device);
  batch.target = batch.target.to(device);
  std::vector<double> values;
  for (int64_t i = 0; i < 3; ++i)
    values.push_back(
        step.run(batch, {.training = true, .seed = 1, .step = i}, 0.05).loss.item<double>());
  return values;
}

class ModelOnGpu : public OnGpu,
                   public testing::WithParamInterface<std::tuple<nn::ModelName, std::string>> {};

TEST_P(ModelOnGpu, TrainsAsOnTheCpu) {
  const auto [name, policy] = GetParam();
  const Case given = case_of(name);
  // Without masters small updates are rounded away, on the CPU as well.
  const bool same = policy == "fp64" || policy == "bf16_params";
  const auto expected = losses(given, same ? policy : "fp32", c10::kCPU);
  const auto found = losses(given, policy, gpu());
  const double tolerance = policy == "fp64" ? 1e-9 : policy == "fp32" ? 1e-4 : 4e-2;
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], tolerance * std::abs(expected[i])) << i;
}

std::string case_name(const testing::TestParamInfo<ModelOnGpu::ParamType>& info) {
  return testing::PrintToString(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
}

INSTANTIATE_TEST_SUITE_P(
    Reference, ModelOnGpu,
    testing::Combine(testing::Values(nn::ModelName::mlp, nn::ModelName::vit, nn::ModelName::swinir,
                                     nn::ModelName::gpt, nn::ModelName::llama),
                     testing::Values("fp64", "fp32", "tf32", "bf16", "fp16", "bf16_masters",
                                     "bf16_params", "bf16_stream")),
    case_name);

}  // namespace
}  // namespace braid
