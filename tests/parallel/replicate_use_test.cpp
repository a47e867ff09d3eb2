// SPDX-License-Identifier: BSD-3-Clause
// Replicate in a program of its own: optimizers of torch, buffers, and misuse that is refused.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <vector>

#include "braid/parallel/replicate.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Replicate;
using test::contains;

struct ReplicaNet : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 1));
  explicit ReplicaNet(uint64_t seed = 1) {
    to(at::kDouble);
    const c10::NoGradGuard no_grad;
    for (const Param& param : named_params(*this))
      param.tensor.copy_(test::drawn(param.tensor.sizes(), seed, param.name));
  }
  at::Tensor forward(const at::Tensor& x) { return second(norm(first(x)).tanh()); }
  at::Tensor without_norm(const at::Tensor& x) { return second(first(x).tanh()).mean(); }
};

// On this thread: modules draw from torch's generator as they are made.
std::vector<std::shared_ptr<ReplicaNet>> replica_nets(int count, bool other_seeds = false) {
  std::vector<std::shared_ptr<ReplicaNet>> nets;
  for (int i = 0; i < count; ++i)
    nets.push_back(std::make_shared<ReplicaNet>(other_seeds ? 1 + static_cast<uint64_t>(i) : 1));
  return nets;
}

at::Tensor replica_batch() { return test::drawn({12, 6}, 5, "batch"); }

at::Tensor replica_share(const comm::Group& world) {
  return replica_batch().chunk(world.size())[static_cast<size_t>(world.rank())];
}

std::unique_ptr<torch::optim::Optimizer> torch_optimizer(bool adam,
                                                         const std::vector<at::Tensor>& params) {
  if (adam) return std::make_unique<torch::optim::Adam>(params, torch::optim::AdamOptions(1e-2));
  return std::make_unique<torch::optim::SGD>(params, torch::optim::SGDOptions(1e-2).momentum(0.9));
}

TEST(ReplicateUse, OptimizersOfTorchTrainAsOneProcess) {
  for (const bool adam : {true, false})
    for (const bool to_none : {true, false})
      for (const int ranks : {1, 2}) {
        const auto nets = replica_nets(ranks + 1);
        const auto alone = torch_optimizer(adam, nets.back()->parameters());
        for (int step = 0; step < 4; ++step) {
          nets.back()->without_norm(replica_batch()).backward();
          alone->step();
          alone->zero_grad(to_none);
        }
        test::on_ranks(ranks, [&](comm::Group world) {
          const auto& net = nets[static_cast<size_t>(world.rank())];
          Replicate replicas(*net, world);
          const auto optimizer = torch_optimizer(adam, net->parameters());
          for (int step = 0; step < 4; ++step) {
            net->without_norm(replica_share(world)).backward();
            replicas.finish();
            optimizer->step();
            optimizer->zero_grad(to_none);
          }
          for (const Param& param : named_params(*net)) {
            const at::Tensor wanted = nets.back()->named_parameters()[param.name];
            EXPECT_TRUE(param.tensor.allclose(wanted, 1e-12, 1e-14)) << param.name;
          }
        });
      }
}

TEST(ReplicateUse, BuffersAreThoseOfTheFirstRank) {
  const auto nets = replica_nets(3);
  const std::shared_ptr<ReplicaNet> alone = nets.back();
  for (int step = 0; step < 3; ++step) alone->forward(replica_batch().chunk(2)[0]);
  nets[1]->norm->running_mean.fill_(7);  // before the start
  test::on_ranks(2, [&](comm::Group world) {
    ReplicaNet& net = *nets[static_cast<size_t>(world.rank())];
    Replicate replicas(net, world);
    EXPECT_TRUE(net.norm->running_mean.equal(at::zeros({8}, at::kDouble)));
    for (int step = 0; step < 3; ++step) {
      net.forward(replica_share(world)).sum().backward();
      replicas.finish();
      net.zero_grad();
    }
    for (const Param& buffer : named_buffers(net))
      EXPECT_TRUE(buffer.tensor.equal(alone->named_buffers()[buffer.name])) << buffer.name;
  });
}

TEST(ReplicateUse, AnUpdateBeforeFinishIsRefused) {
  const auto net = replica_nets(1)[0];
  Replicate replicas(net, comm::Group());
  torch::optim::SGD sgd(net->parameters(), 0.1);
  net->without_norm(replica_batch()).backward();
  sgd.step();
  std::string text = test::error_of([&] { replicas.finish(); });
  EXPECT_TRUE(contains(text, "first.weight was changed between backward() and Replicate::finish"));
  EXPECT_TRUE(contains(text, "call finish() after backward(), then step()"));
  sgd.zero_grad();
  text = test::error_of([&] { replicas.finish(); });
  EXPECT_TRUE(contains(text, "the gradient of first.weight is gone before Replicate::finish()"));
}

TEST(ReplicateUse, OtherParametersOnAnotherRankAreNamed) {
  const auto nets = replica_nets(2);
  test::on_ranks(2, [&](comm::Group world) {
    std::vector<Param> params = named_params(*nets[static_cast<size_t>(world.rank())]);
    if (world.rank() == 1) params.pop_back();
    std::string text = test::error_of([&] { Replicate wrong(params, world); });
    EXPECT_TRUE(contains(text,
                         "other parameters on rank 1 than on rank 0: parameter 6 is missing "
                         "there and second.bias Double [1] here (5 and 6 parameters)"));
    params = named_params(*nets[static_cast<size_t>(world.rank())]);
    if (world.rank() == 1) params[1].tensor = at::zeros({9}, at::kDouble).requires_grad_();
    text = test::error_of([&] { Replicate wrong(params, world); });
    EXPECT_TRUE(contains(text, "first.bias Double [9] there and first.bias Double [8] here"));
    text = test::error_of(
        [&] { Replicate wrong(world.rank() == 1 ? std::vector<Param>() : params, world); });
    EXPECT_TRUE(contains(text, "build the same module on every rank"));
  });
}

}  // namespace
}  // namespace braid
