// SPDX-License-Identifier: BSD-3-Clause
// The parameter server against a simulation in one loop, and against the theory of delayed steps.
#include "braid/parallel/async_sgd.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "support/drawn.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

at::Tensor async_normal(at::IntArrayRef sizes, uint64_t seed) {
  return test::drawn(sizes, seed, "async");
}

// A layer and a head; the data differ from worker to worker and from step to step.
std::vector<Param> new_params() {
  return {{"fc.weight", async_normal({5, 3}, 1).requires_grad_()},
          {"scale", at::full({}, 0.5, at::kFloat).requires_grad_()},
          {"head.weight", async_normal({3}, 2).requires_grad_()}};
}

void backward(const std::vector<Param>& params, int worker, int64_t step) {
  const at::Tensor x = async_normal({4, 5}, static_cast<uint64_t>(1000 * worker + step));
  const at::Tensor y = at::matmul(x, params[0].tensor).tanh().mul(params[1].tensor);
  at::matmul(y, params[2].tensor).pow(2).mean().backward();
}

void sgd(const std::vector<Param>& params, double lr) {
  const at::NoGradGuard no_grad;
  for (const Param& param : params) param.tensor.detach().sub_(param.tensor.grad(), lr);
}

std::vector<at::Tensor> copies(const std::vector<Param>& params) {
  std::vector<at::Tensor> result;
  for (const Param& param : params) result.push_back(param.tensor.detach().clone());
  return result;
}

constexpr double async_lr = 0.2;

// One loop: update k is by worker k % n, of the weights that were there n - 1 updates before.
std::vector<at::Tensor> simulate(int workers, int64_t updates, const AsyncOptions& options) {
  std::vector<Param> params = new_params();
  std::vector<std::vector<at::Tensor>> history = {copies(params)};
  for (int64_t k = 0; k < updates; ++k) {
    const int64_t delay = std::min<int64_t>(k, workers - 1);
    const auto& then = history[static_cast<size_t>(k - delay)];
    for (size_t i = 0; i < params.size(); ++i) {
      params[i].tensor = then[i].clone().requires_grad_();
    }
    backward(params, 1 + static_cast<int>(k % workers), k / workers);
    const double scale = options.scale_by_delay && delay > 1 ? 1.0 / static_cast<double>(delay) : 1;
    std::vector<at::Tensor> next;
    for (size_t i = 0; i < params.size(); ++i) {
      const at::Tensor &now = history.back()[i], grad = params[i].tensor.grad();
      if (options.compensation != 0)
        grad.add_(now.sub(then[i]).mul(grad).mul(grad), options.compensation);
      next.push_back(now.sub(grad, async_lr * scale));
    }
    history.push_back(next);
  }
  return history.back();
}

TEST(AsyncSgd, InOrderIsTheSimulationToTheBit) {
  for (const AsyncOptions& options :
       {AsyncOptions{.round_robin = true},
        AsyncOptions{.staleness = 1, .round_robin = true, .scale_by_delay = true},
        AsyncOptions{.round_robin = true, .compensation = 0.7}})
    for (const int workers : {1, 2, 3}) {
      const std::vector<at::Tensor> wanted = simulate(workers, 6 * workers, options);
      test::on_ranks(workers + 1, [&](comm::Group world) {
        const std::vector<Param> params = new_params();
        if (world.rank() > 0) {
          AsyncWorker worker(params, world);
          for (int64_t step = 0; step < 6; ++step) {
            backward(params, world.rank(), step);
            EXPECT_EQ(worker.step(), step * workers + world.rank());
          }
          return;
        }
        AsyncServer server(params, world, options);
        server.run([&](double scale) { sgd(params, async_lr * scale); },
                   [&](const AsyncUpdate& seen) {
                     EXPECT_EQ(seen.delay, std::min<int64_t>(seen.version - 1, workers - 1));
                     EXPECT_EQ(seen.worker, 1 + (seen.version - 1) % workers);
                   });
        for (size_t i = 0; i < params.size(); ++i)
          EXPECT_TRUE(params[i].tensor.equal(wanted[i])) << workers << " " << params[i].name;
      });
    }
}

class DelayedSgd : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Tau, DelayedSgd, testing::Range(0, 4));

// w <- w - eta w(tau updates ago) converges for 0 < eta < 2 sin(pi / (2 (2 tau + 1))): one weight
// is 2 % below that bound, one 2 % above.
TEST_P(DelayedSgd, ConvergesUpToTheBoundOfItsDelay) {
  const int tau = GetParam();
  const double bound = 2 * std::sin(M_PI / (2 * (2 * tau + 1)));
  test::on_ranks(tau + 2, [&](comm::Group world) {
    const at::Tensor rate = at::tensor({0.98 * bound, 1.02 * bound}, at::kDouble);
    const at::Tensor weight = at::full({2}, 1.0, at::kDouble).requires_grad_();
    if (world.rank() > 0) {
      AsyncWorker worker({{"w", weight}}, world);
      for (int64_t step = 0; step < 600 / (tau + 1); ++step) {
        weight.mutable_grad() = weight.detach().mul(rate);
        worker.step();
      }
      return;
    }
    double below = 0, above = 0;
    AsyncServer server({{"w", weight}}, world, {.round_robin = true});
    server.run([&](double) { sgd({{"w", weight}}, 1); },
               [&](const AsyncUpdate& seen) {
                 if (seen.version < 560) return;  // it swings: look at the last 40
                 below = std::max(below, std::abs(weight[0].item<double>()));
                 above = std::max(above, std::abs(weight[1].item<double>()));
               });
    EXPECT_LT(below, 0.3) << "tau " << tau;
    EXPECT_GT(above, 3) << "tau " << tau;
  });
}

// The slow worker makes no step before the fast one stands still at the bound.
TEST(AsyncSgd, ABoundOnStalenessHolds) {
  const int64_t bound = 3;
  std::atomic<int64_t> fast{0}, furthest{0};
  test::on_ranks(4, [&](comm::Group world) {
    const std::vector<Param> params = new_params();
    if (world.rank() > 0) {
      AsyncWorker worker(params, world);
      for (int64_t step = 0; step < 12; ++step) {
        if (world.rank() == 3)
          while (fast < std::min(step + bound, int64_t{12})) std::this_thread::yield();
        if (world.rank() == 3) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        backward(params, world.rank(), step);
        worker.step();
      }
      return;
    }
    AsyncServer server(params, world, {.staleness = bound});
    server.run([&](double scale) { sgd(params, 0.01 * scale); },
               [&](const AsyncUpdate& seen) {
                 if (seen.worker == 1) fast = seen.clock;
                 EXPECT_LE(seen.clock - seen.slowest, bound);
                 furthest = std::max(furthest.load(), seen.clock - seen.slowest);
               });
  });
  EXPECT_EQ(furthest, bound);  // it was the bound that held the fast one
}

TEST(AsyncSgd, WithoutABoundAFastWorkerRunsAway) {
  std::atomic<bool> finished{false};
  test::on_ranks(3, [&](comm::Group world) {
    const std::vector<Param> params = new_params();
    if (world.rank() > 0) {
      AsyncWorker worker(params, world);
      if (world.rank() == 2)
        while (!finished) std::this_thread::yield();
      for (int64_t step = 0; step < 9; ++step) worker.step();  // no gradients: zeros
      finished = true;
      return;
    }
    const std::vector<at::Tensor> before = copies(params);
    int64_t furthest = 0;
    AsyncServer server(params, world);
    server.run(
        [&](double scale) { sgd(params, scale); },
        [&](const AsyncUpdate& seen) { furthest = std::max(furthest, seen.clock - seen.slowest); });
    EXPECT_EQ(furthest, 9);
    for (size_t i = 0; i < params.size(); ++i) EXPECT_TRUE(params[i].tensor.equal(before[i]));
  });
}

TEST(AsyncSgd, AWorkerThatEndsEarlyHoldsUpNobody) {
  for (const bool in_order : {false, true})
    test::on_ranks(4, [&](comm::Group world) {
      const std::vector<Param> params = new_params();
      if (world.rank() > 0) {
        AsyncWorker worker(params, world);
        for (int64_t step = 0; step < (world.rank() == 2 ? 3 : 8); ++step) worker.step();
        return;
      }
      std::map<int, int64_t> clocks;
      AsyncServer server(params, world, {.staleness = 2, .round_robin = in_order});
      const auto lost = server.run(
          [](double) {}, [&](const AsyncUpdate& seen) { clocks[seen.worker] = seen.clock; });
      EXPECT_TRUE(lost.empty());
      EXPECT_EQ(clocks, (std::map<int, int64_t>{{1, 8}, {2, 3}, {3, 8}}));
    });
}

// Worker 2 meets an error after two steps.
void failing_run(comm::Group world, bool keep_going) {
  const std::vector<Param> params = new_params();
  if (world.rank() == 2) {
    try {
      AsyncWorker worker(params, world);
      for (int64_t step = 0; step < 2; ++step) worker.step();
      throw std::runtime_error("out of data");
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "out of data");
    }
  } else if (world.rank() > 0) {
    const auto work = [&] {
      AsyncWorker worker(params, world);
      for (int64_t step = 0; step < 20; ++step) worker.step();
    };
    if (keep_going) return work();
    EXPECT_TRUE(contains(error_of(work), "failed on rank"));
  } else {
    AsyncServer server(params, world, {.staleness = 2, .keep_going = keep_going});
    if (keep_going) {
      EXPECT_EQ(server.run([](double) {}), std::vector<int>{2});
    } else {
      EXPECT_TRUE(contains(error_of([&] { server.run([](double) {}); }),
                           "worker rank 2 was lost after 2 updates"));
    }
  }
}

TEST(AsyncSgd, ALostWorkerIsNamed) {
  test::on_ranks(4, [](comm::Group world) { failing_run(world, false); });
}

TEST(AsyncSgd, TheOthersCanGoOnWithoutALostWorker) {
  test::on_ranks(4, [](comm::Group world) { failing_run(world, true); });
}

TEST(AsyncSgd, AnErrorOfTheUpdateEndsAll) {
  test::on_ranks(3, [](comm::Group world) {
    const std::vector<Param> params = new_params();
    if (world.rank() > 0) {
      EXPECT_TRUE(contains(error_of([&] { AsyncWorker(params, world).step(); }), "failed on rank"));
      return;
    }
    AsyncServer server(params, world);
    EXPECT_THROW(server.run([](double) { throw std::runtime_error("no memory"); }),
                 std::runtime_error);
  });
}

TEST(AsyncSgd, OtherParametersAreRefusedOnBothSides) {
  test::on_ranks(2, [](comm::Group world) {
    std::vector<Param> params = new_params();
    if (world.rank() == 1) params[1].tensor = at::zeros({2});
    const std::string text = error_of([&] {
      if (world.rank() == 0) AsyncServer(params, world);
      if (world.rank() == 1) AsyncWorker(params, world);
    });
    EXPECT_TRUE(contains(text, "worker rank 1 has other parameters than the server, rank 0"));
  });
}

TEST(AsyncSgd, OptionsAreReadFromAConfig) {
  const auto options = read_options<AsyncOptions>(
      Config::parse("{staleness: 4, round_robin: true, compensation: 0.04}"));
  EXPECT_EQ(options.staleness, 4);
  EXPECT_TRUE(options.round_robin);
  EXPECT_EQ(options.compensation, 0.04);
  EXPECT_TRUE(contains(error_of([] { read_options<AsyncOptions>(Config::parse("{stalenes: 4}")); }),
                       "staleness"));
}

}  // namespace
}  // namespace braid::parallel
