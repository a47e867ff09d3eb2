// SPDX-License-Identifier: BSD-3-Clause
// recompute() in a plain LibTorch program: a torch::nn module, an optimizer, no trainer.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/rand.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
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

struct InBf16 {
  InBf16() {
    at::autocast::set_autocast_enabled(c10::kCPU, true);
    at::autocast::set_autocast_dtype(c10::kCPU, c10::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~InBf16() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(c10::kCPU, false);
  }
};

// The forward pass under autocast, the backward pass outside of it, as is usual.
TEST(RecomputeModule, RestoresAutocast) {
  const auto gradients = [](bool again) {
    torch::nn::Sequential net = perceptron();
    at::Tensor loss;
    {
      const InBf16 inside;
      const at::Tensor x = drawn({2, 5, 8}, 0.7);
      auto run = [net](const auto& in) mutable { return net->forward(in[0]); };
      loss = (again ? recompute(run, {x}, {.check = true}) : run(std::vector{x}));
      EXPECT_EQ(loss.scalar_type(), c10::kBFloat16);
      loss = loss.to(c10::kFloat).pow(2).mean();
    }
    loss.backward();
    std::vector<at::Tensor> all;
    for (const at::Tensor& param : net->parameters()) all.push_back(param.grad());
    return all;
  };
  EXPECT_TRUE(test_stack::same_bits(gradients(true), gradients(false)));
}

TEST(RecomputeModule, DropoutOfTorchHasTheMaskOfTheForwardPass) {
  const auto run = [](bool again) {
    at::manual_seed(5);
    torch::nn::Sequential net = perceptron();
    net->push_back(torch::nn::Dropout(0.5));
    at::manual_seed(7);
    at::Tensor y = drawn({2, 5, 8}, 0.7);
    auto forward = [net](const auto& in) mutable { return net->forward(in[0]); };
    for (int i = 0; i < 2; ++i)
      y = again ? recompute(forward, {y}, {.check = true}) : forward(std::vector{y});
    y.pow(2).mean().backward();
    std::vector<at::Tensor> all = {at::rand({3})};  // the generator goes on from where it was
    for (const at::Tensor& param : net->parameters()) all.push_back(param.grad());
    return all;
  };
  EXPECT_TRUE(test_stack::same_bits(run(true), run(false)));
}

}  // namespace
}  // namespace braid::memory
