// SPDX-License-Identifier: BSD-3-Clause
// recompute() in a plain LibTorch program: a torch::nn module, an optimizer, no trainer.
#include <gtest/gtest.h>

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/sgd.h>

#include "braid/memory/recompute.h"
#include "memory/recompute_stack.h"

namespace braid::memory {
namespace {

using test_stack::drawn;

torch::nn::Sequential perceptron() {
  torch::nn::Sequential net(torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})),
                            torch::nn::Linear(8, 32), torch::nn::GELU(), torch::nn::Linear(32, 8));
  const at::NoGradGuard no_grad;
  double seed = 0;
  for (const at::Tensor& param : net->parameters()) param.copy_(drawn(param.sizes(), seed += 0.1));
  return net;
}

std::vector<at::Tensor> trained(bool again) {
  torch::nn::Sequential first = perceptron(), second = perceptron();
  std::vector<at::Tensor> params = first->parameters();
  for (const at::Tensor& param : second->parameters()) params.push_back(param);
  torch::optim::SGD sgd(params, torch::optim::SGDOptions(0.1));
  const at::Tensor x = drawn({2, 5, 8}, 0.7);
  for (int step = 0; step < 3; ++step) {
    sgd.zero_grad();
    at::Tensor y = x;
    for (torch::nn::Sequential net : {first, second})
      y = again ? recompute([net](const auto& in) mutable { return net->forward(in[0]); }, {y})
                : net->forward(y);
    y.pow(2).mean().backward();
    sgd.step();
  }
  return params;
}

TEST(RecomputeModule, TrainsToTheSameBits) {
  EXPECT_TRUE(test_stack::same_bits(trained(true), trained(false)));
}

}  // namespace
}  // namespace braid::memory
