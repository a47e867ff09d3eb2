// SPDX-License-Identifier: BSD-3-Clause
// Averages every few steps against synchronous steps and against the formulas of SlowMo.
#include "braid/parallel/local_sgd.h"

#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "braid/comm/counting.h"
#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return test::drawn(sizes, seed, "local");
}

// Two layers, trained on other data on each rank and in each step.
struct Net {
  std::vector<Param> params = {{"fc.weight", normal({6, 4}, 1).requires_grad_()},
                               {"out.weight", normal({4}, 2).requires_grad_()}};

  void backward(int64_t step, int rank) const {
    const at::Tensor x = normal({5, 6}, static_cast<uint64_t>(100 + 10 * step + rank));
    at::matmul(at::matmul(x, params[0].tensor).tanh(), params[1].tensor).pow(2).mean().backward();
  }
  void update(double lr) const {
    const at::NoGradGuard no_grad;
    for (const Param& param : params) {
      if (param.tensor.grad().defined()) param.tensor.detach().sub_(param.tensor.grad(), lr);
      param.tensor.mutable_grad().reset();
    }
  }
  at::Tensor flat() const {
    return at::stack({params[0].tensor.detach().view({-1}).sum(), params[1].tensor.detach().sum()});
  }
};

void expect_close(const Net& a, const Net& b, double tolerance) {
  for (size_t i = 0; i < a.params.size(); ++i)
    EXPECT_LE(a.params[i].tensor.sub(b.params[i].tensor).abs().max().item<double>(), tolerance);
}

void train(const Net& net, LocalSgd& local, const comm::Group& world, int64_t steps,
           double lr = 0.1) {
  for (int64_t step = 0; step < steps; ++step) {
    net.backward(step, world.rank());
    local.average_gradients(step);
    net.update(lr);
    local.average_weights(step, lr);
  }
}

// One process that averages the gradients of all ranks in every step.
Net synchronous_steps(int ranks, int64_t steps, double lr = 0.1) {
  Net net;
  for (int64_t step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) net.backward(step, rank);
    net.update(lr / ranks);
  }
  return net;
}

TEST(LocalSgd, EveryStepIsSynchronousSgd) {
  for (const int ranks : {1, 2, 3}) {
    const Net wanted = synchronous_steps(ranks, 8);
    test::on_ranks(ranks, [&](comm::Group world) {
      const Net net;
      LocalSgd local(net.params, world, {.every = 1});
      train(net, local, world, 8);
      expect_close(net, wanted, 1e-12);
    });
  }
}

TEST(LocalSgd, StepsBeforeTheStartAreSynchronous) {
  const Net wanted = synchronous_steps(2, 6);
  test::on_ranks(2, [&](comm::Group world) {
    const Net net;
    LocalSgd local(net.params, world, {.every = 4, .start = 6});
    train(net, local, world, 6);
    expect_close(net, wanted, 1e-12);
    EXPECT_TRUE(local.agree());
    EXPECT_FALSE(local.synchronous(6));
    net.backward(6, world.rank());
    local.average_gradients(6);
    net.update(0.1);
    EXPECT_FALSE(local.average_weights(6, 0.1));
    EXPECT_FALSE(local.agree());
  });
}

TEST(LocalSgd, AveragesOnceEveryHSteps) {
  test::on_ranks(2, [&](comm::Group world) {
    const auto traffic = std::make_shared<comm::Traffic>();
    const Net net;
    LocalSgd local(net.params, comm::Group(comm::counting(world.backend(), traffic)), {.every = 4});
    train(net, local, world, 18);
    EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 18 / 4);
    EXPECT_EQ(traffic->bytes(comm::Kind::all_reduce), 18 / 4 * 28 * 8);
    EXPECT_TRUE(local.average_now());  // the two steps that are left
    EXPECT_FALSE(local.average_now());
    EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 18 / 4 + 1);
    const at::Tensor sums = net.flat(), largest = sums.clone();
    world.all_reduce(largest, comm::Op::max).wait();
    EXPECT_TRUE(largest.equal(sums));
    LocalSgd small(net.params, comm::Group(comm::counting(world.backend(), traffic)),
                   {.every = 1, .bucket = {8 * 24}});
    traffic->clear();
    small.average_weights(0, 0.1);
    EXPECT_EQ(traffic->calls(comm::Kind::all_reduce), 2);  // a bucket for each of the two
  });
}

TEST(SlowMo, WithoutMomentumIsLocalSgdToTheBit) {
  test::on_ranks(3, [&](comm::Group world) {
    const Net plain, slow;
    LocalSgd local(plain.params, world, {.every = 3});
    LocalSgd slowly(slow.params, world, {.every = 3, .slow_momentum = 0.0, .slow_lr = 1});
    train(plain, local, world, 9);
    train(slow, slowly, world, 9);
    for (size_t i = 0; i < 2; ++i) EXPECT_TRUE(plain.params[i].tensor.equal(slow.params[i].tensor));
  });
}

// The formulas as they are printed, for all ranks in one process.
TEST(SlowMo, FollowsItsFormulas) {
  const double beta = 0.6, alpha = 0.8;
  Net wanted;
  std::vector<at::Tensor> u = {at::zeros({6, 4}, at::kDouble), at::zeros({4}, at::kDouble)};
  for (int64_t round = 0; round < 4; ++round) {
    const double lr = 0.1 / static_cast<double>(1 + round);
    Net local[2];
    for (int rank = 0; rank < 2; ++rank) {
      for (size_t i = 0; i < 2; ++i)
        local[rank].params[i].tensor.detach().copy_(wanted.params[i].tensor.detach());
      for (int64_t step = 3 * round; step < 3 * round + 3; ++step) {
        local[rank].backward(step, rank);
        local[rank].update(lr);
      }
    }
    for (size_t i = 0; i < 2; ++i) {
      const at::Tensor x = wanted.params[i].tensor.detach();
      const at::Tensor mean =
          local[0].params[i].tensor.detach().add(local[1].params[i].tensor.detach()).div(2);
      u[i] = u[i].mul(beta).add(x.sub(mean).div(lr));
      x.sub_(u[i], alpha * lr);
    }
  }
  test::on_ranks(2, [&](comm::Group world) {
    const Net net;
    LocalSgd local(net.params, world, {.every = 3, .slow_momentum = beta, .slow_lr = alpha});
    for (int64_t step = 0; step < 12; ++step) {
      const double lr = 0.1 / static_cast<double>(1 + step / 3);
      net.backward(step, world.rank());
      net.update(lr);
      local.average_weights(step, lr);
    }
    expect_close(net, wanted, 1e-12);
  });
}

TEST(SlowMo, ResumesFromItsState) {
  test::on_ranks(2, [&](comm::Group world) {
    const LocalSgdOptions options{.every = 2, .slow_momentum = 0.7};
    const Net whole, first, second;
    LocalSgd unbroken(whole.params, world, options), until(first.params, world, options);
    train(whole, unbroken, world, 4);
    train(first, until, world, 4);
    for (size_t i = 0; i < 2; ++i)
      second.params[i].tensor.detach().copy_(first.params[i].tensor.detach());
    LocalSgd after(second.params, world, options);
    after.load(until.state());
    train(whole, unbroken, world, 4);
    train(second, after, world, 4);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(whole.params[i].tensor.equal(second.params[i].tensor));
    EXPECT_EQ(after.state().tensors.size(), 4u);
    State other = after.state();
    other.tensors["fc.weight/slow_weight"] = at::zeros({3}, at::kDouble);
    EXPECT_TRUE(contains(error_of([&] { after.load(other); }), "fc.weight/slow_weight has 3"));
  });
}

TEST(LocalSgd, MomentumAndMastersAreAveragedToo) {
  test::on_ranks(2, [&](comm::Group world) {
    const double own = 1 + 2 * world.rank();
    const at::Tensor weight = at::full({4}, own, at::kBFloat16);
    State optimizer;
    optimizer.tensors["w/master"] = at::full({4}, own + 0.0009765625, at::kFloat);
    optimizer.tensors["w/exp_avg"] = at::full({4}, own, at::kFloat);
    optimizer.tensors["w/step"] = at::full({}, 7 + world.rank(), at::kFloat);
    LocalSgd local({{"w", weight}}, world, {.every = 1});
    EXPECT_TRUE(local.average_weights(0, 0.1, optimizer));
    EXPECT_EQ(optimizer.tensor("w/master")[0].item<double>(), 2.0009765625);  // not rounded
    EXPECT_EQ(weight[3].item<double>(), 2.0);
    EXPECT_EQ(optimizer.tensor("w/exp_avg")[1].item<double>(), 2.0);
    EXPECT_EQ(optimizer.tensor("w/step").item<double>(), 7 + world.rank());
  });
}

TEST(LocalSgd, OptionsAreReadFromAConfig) {
  const auto options = read_options<LocalSgdOptions>(
      Config::parse("{every: 16, start: 100, slow_momentum: 0.5, bucket: 1MiB}"));
  EXPECT_EQ(options.every, 16);
  EXPECT_EQ(options.slow_momentum, 0.5);
  EXPECT_EQ(options.bucket.count, 1 << 20);
  EXPECT_FALSE(read_options<LocalSgdOptions>(Config::parse("{slow_momentum: none}")).slow_momentum);
  error_of([] { read_options<LocalSgdOptions>(Config::parse("{every: 0}")); });
}

}  // namespace
}  // namespace braid::parallel
