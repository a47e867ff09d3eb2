// SPDX-License-Identifier: BSD-3-Clause
// Zero in a program of its own: optimizers of torch over its pieces, and misuse that is refused.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/output-archive.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "braid/comm/backend.h"
#include "braid/parallel/zero.h"
#include "parallel/zero_toy.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Zero;
using test::contains;
using test::error_of;
using test::Toy;

comm::Group half_of_two() { return comm::Group(comm::dry(0, 2)); }
at::Tensor misuse_batch() { return test::toy_values({4, 6}, "batch"); }

std::vector<at::Tensor> tensors_of(const std::vector<Param>& params) {
  std::vector<at::Tensor> tensors;
  for (const Param& param : params) tensors.push_back(param.tensor);
  return tensors;
}

// What torch says, without its stack.
template <class Body>
std::string torch_error_of(const Body& body) {
  try {
    body();
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  ADD_FAILURE() << "no error was thrown";
  return "";
}

TEST(ZeroMisuse, OptimizersOfTorchTrainPiecesAsOneProcess) {
  const auto optimizer_of =
      [](bool adam,
         const std::vector<at::Tensor>& tensors) -> std::unique_ptr<torch::optim::Optimizer> {
    if (adam) return std::make_unique<torch::optim::Adam>(tensors, 1e-2);
    return std::make_unique<torch::optim::SGD>(tensors, 1e-2);
  };
  for (const bool adam : {true, false}) {
    Toy alone;
    const auto wanted = optimizer_of(adam, tensors_of(alone.params));
    for (int step = 0; step < 3; ++step) {
      alone.loss(misuse_batch(), 4).backward();
      wanted->step();
      wanted->zero_grad();
    }
    for (const int stage : {1, 2, 3})
      for (const bool to_none : {true, false})
        test::on_ranks(2, [&](comm::Group world) {
          Toy model;
          Zero zero(model.units(), world, {}, {.stage = stage, .average = false});
          const auto optimizer = optimizer_of(adam, tensors_of(zero.params()));
          const at::Tensor mine = misuse_batch().chunk(2)[static_cast<size_t>(world.rank())];
          for (int step = 0; step < 3; ++step) {
            model.loss(mine, 4, &zero).backward();
            zero.finish();
            optimizer->step();
            optimizer->zero_grad(to_none);
            zero.publish();
          }
          for (const Param& piece : zero.params())
            EXPECT_TRUE(piece.tensor.detach().reshape({-1}).allclose(
                test::toy_piece(alone.find(piece.name).detach(), piece), 1e-11, 1e-13))
                << piece.name << " of stage " << stage;
        });
  }
}

TEST(ZeroMisuse, AnOptimizerOverTheModuleIsRefused) {
  for (const int stage : {1, 2, 3}) {
    Toy model;
    Zero zero(model.units(), half_of_two(), {}, {.stage = stage});
    torch::optim::SGD sgd(tensors_of(model.params), 0.1);
    model.loss(misuse_batch(), 4, &zero).backward();
    zero.finish();
    sgd.step();
    const std::string text = error_of([&] { zero.publish(); });
    EXPECT_TRUE(contains(text, "no piece was updated since finish()"));
    EXPECT_TRUE(contains(text, "give the optimizer zero.params()"));
  }
}

TEST(ZeroMisuse, AStepBeforeFinishIsRefused) {
  Toy model;
  Zero zero(model.units(), half_of_two(), {}, {.stage = 2});
  torch::optim::Adam adam(tensors_of(zero.params()), 0.1);
  model.loss(misuse_batch(), 4).backward();
  zero.finish();
  adam.step();
  zero.publish();
  model.loss(misuse_batch(), 4).backward();
  adam.step();
  const std::string text = error_of([&] { zero.finish(); });
  EXPECT_TRUE(contains(text, "of Zero::params() was changed before finish()"));
  EXPECT_TRUE(contains(text, "backward(), zero.finish(), optimizer.step(), zero.publish()"));
}

TEST(ZeroMisuse, AForgottenPublishIsRefused) {
  Toy model;
  Zero zero(model.units(), half_of_two(), {}, {.stage = 1});
  torch::optim::SGD sgd(tensors_of(zero.params()), 0.1);
  const auto step = [&] {
    model.loss(misuse_batch(), 4).backward();
    zero.finish();
    sgd.step();
  };
  step();
  EXPECT_TRUE(contains(error_of(step), "after finish(), and publish() was not called"));
}

struct MisusedNet : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
};

TEST(ZeroMisuse, AWeightThatIsNotGatheredIsNamed) {
  MisusedNet net;
  Zero zero(net, {"first", "norm"}, half_of_two(), {.stage = 3});
  const std::string wanted = "one of the weights first.weight to first.bias is not gathered";
  const at::Tensor x = at::zeros({2, 6});
  EXPECT_TRUE(contains(torch_error_of([&] { net.first->weight.sum(); }), wanted));
  const std::string text = torch_error_of([&] { net.first(x); });
  EXPECT_TRUE(contains(text, wanted));
  EXPECT_TRUE(contains(text, "while Zero::run(\"first\", ...) runs"));
  EXPECT_TRUE(contains(torch_error_of([&] {
                         torch::serialize::OutputArchive archive;
                         net.save(archive);
                         std::ostringstream out;
                         archive.save_to(out);
                       }),
                       wanted));
  const auto forward = [&](const at::Tensor& in) { return net.first(in); };
  EXPECT_TRUE(zero.run("first", x, forward).sizes() == at::IntArrayRef({2, 8}));
}

TEST(ZeroMisuse, BuffersAreThoseOfTheFirstRank) {
  std::vector<std::shared_ptr<MisusedNet>> nets = {std::make_shared<MisusedNet>(),
                                                   std::make_shared<MisusedNet>()};
  test::on_ranks(2, [&](comm::Group world) {
    MisusedNet& net = *nets[static_cast<size_t>(world.rank())];
    net.norm->running_mean.fill_(world.rank() + 3);
    Zero zero(net, {"first"}, world, {.stage = 2});
    EXPECT_EQ(net.norm->running_mean.sum().item<double>(), 24);
    net.norm->running_mean.fill_(world.rank() + 5);
    net.norm(net.first(at::zeros({2, 6}))).sum().backward();
    const at::Tensor first = net.norm->running_mean.clone();
    world.broadcast(first, 0).wait();
    zero.finish();
    EXPECT_TRUE(net.norm->running_mean.equal(first));
  });
}

TEST(ZeroMisuse, OtherParametersOnAnotherRankAreNamed) {
  test::on_ranks(2, [&](comm::Group world) {
    Toy model({.blocks = world.rank() == 0 ? 3 : 2});
    const std::string text = error_of([&] { Zero zero(model.units(), world); });
    EXPECT_TRUE(contains(text, "Zero was given other parameters on rank 1 than on rank 0"));
    EXPECT_TRUE(contains(text, "blocks.2.up Double [8, 12] here"));
  });
}

}  // namespace
}  // namespace braid
