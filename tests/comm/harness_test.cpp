// SPDX-License-Identifier: BSD-3-Clause
// The harness finds what it is there to find: planted failures, hangs and shared random numbers.
#include <ATen/ops/dropout.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "support/ranks.h"

namespace braid {
namespace {

void sums_of_ranks(const comm::Group& world) {
  const at::Tensor mine = at::full({3}, world.rank() + 1, at::kFloat);
  world.all_reduce(mine).wait();
  EXPECT_EQ(mine.sum().item<float>(), 3 * world.size() * (world.size() + 1) / 2);
}

class HarnessTimes : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, HarnessTimes, testing::Values(1, 2, 4, 8, 16));

TEST_P(HarnessTimes, RunsRanksAsThreads) {
  const auto start = std::chrono::steady_clock::now();
  test::on_ranks(GetParam(), sums_of_ranks);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::printf("on_ranks(%d): %.3f s\n", GetParam(), took.count());
}

TEST(Harness, RunsTheSameBodyAsProcesses) {
  test::on_processes(2, [](comm::Group world) {
    sums_of_ranks(world);
    EXPECT_NE(std::getenv("BRAID_TEST_RANK"), nullptr) << "not a process of its own";
  });
}

TEST(Harness, NamesTheRankThatThrewAndEndsTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_NONFATAL_FAILURE(test::on_ranks(4,
                                         [](comm::Group world) {
                                           if (world.rank() == 2) throw std::runtime_error("tea");
                                           world.barrier().wait();
                                         }),
                          "rank 2 of 4 threw: tea");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 5) << "the others waited for their time to run out";
}

TEST(Harness, NamesTheRankThatFailedAndEndsTheOthers) {
  EXPECT_FATAL_FAILURE(test::on_ranks(3,
                                      [](comm::Group world) {
                                        ASSERT_NE(world.rank(), 1) << "salt";
                                        world.barrier().wait();
                                      }),
                       "on rank 1 of 3");
}

TEST(Harness, AnExceptionPassesACallThatOthersDoNotMake) {
  EXPECT_NONFATAL_FAILURE(test::on_ranks(2,
                                         [](comm::Group world) {
                                           const at::Tensor mine = at::zeros({3});
                                           if (world.rank() == 1) {
                                             comm::Pending under_way = world.all_reduce(mine);
                                             throw std::runtime_error("milk");
                                           }
                                           world.recv(mine, 1).wait();
                                         }),
                          "rank 1 of 2 threw: milk");
}

TEST(Harness, ShowsWhatAProcessSaidThatFailed) {
  const auto body = [](comm::Group world) {
    if (world.rank() == 1) throw std::runtime_error("pepper");
    world.all_reduce(at::zeros({3})).wait();
  };
  testing::TestPartResultArray seen;
  {
    using Catch = testing::ScopedFakeTestPartResultReporter;
    const Catch here(Catch::INTERCEPT_ALL_THREADS, &seen);
    test::on_processes(2, body);
  }
  std::string said;
  for (int i = 0; i < seen.size(); ++i) said += seen.GetTestPartResult(i).message();
  EXPECT_NE(said.find("process of rank 1 of 2 ended with code 1"), std::string::npos) << said;
  EXPECT_NE(said.find("rank 1 of 2 threw: pepper"), std::string::npos) << said;
}

TEST(Harness, GivesEachRankNumbersOfItsOwn) {
  const at::Tensor drawn = at::zeros({2, 4});
  for (int run = 0; run < 2; ++run) {
    const at::Tensor before = drawn.clone();
    test::on_ranks(
        2, [&](test::Rank& rank) { drawn[rank.world.rank()].copy_(at::rand({4}, rank.generator)); },
        {.seed = 7});
    EXPECT_TRUE(run == 0 || drawn.equal(before)) << "the same seed gave other numbers";
  }
  EXPECT_FALSE(drawn[0].equal(drawn[1]));
}

TEST(Harness, FindsUseOfTheDefaultGenerator) {
  EXPECT_NONFATAL_FAILURE(test::on_ranks(2,
                                         [](comm::Group world) {
                                           if (world.rank() == 1) at::rand({3});
                                           world.barrier().wait();
                                         }),
                          "the default random generator was used by rank 1 in aten::rand");
  EXPECT_NONFATAL_FAILURE(
      test::on_ranks(1, [](comm::Group) { at::dropout(at::zeros({4}), 0.5, true); }),
      "was used by rank 0 in aten::dropout");
}

TEST(HarnessDeathTest, NamesStuckRanksTheirCallsAndStacks) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto deadlock = [] {
    test::on_ranks(3,
                   [](comm::Group world) {
                     if (world.rank() == 1) return;  // the planted mistake
                     world.all_reduce(at::zeros({3})).wait();
                   },
                   {.limit_seconds = 1});
  };
  EXPECT_EXIT(
      deadlock(), testing::ExitedWithCode(test::stuck_exit_code),
      "rank 0 of 3: stuck; waits in all_reduce sum Float \\[3\\] of group world \\(call 0\\)"
      ".*#[0-9]+ braid::comm::Pending::wait\\(\\)"
      ".*rank 1 of 3: has left the test.*rank 2 of 3: stuck");
}

TEST(HarnessDeathTest, ReportsAStuckProcess) {
  testing::TestPartResultArray seen;
  {
    using Catch = testing::ScopedFakeTestPartResultReporter;
    const Catch here(Catch::INTERCEPT_ALL_THREADS, &seen);
    test::on_processes(2,
                       [](comm::Group world) {
                         if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::hours(1));
                         world.broadcast(at::zeros({2}), 0).wait();
                       },
                       {.limit_seconds = 1});
  }
  std::string said;
  for (int i = 0; i < seen.size(); ++i) said += seen.GetTestPartResult(i).message();
  EXPECT_NE(said.find("rank 0 of 2: stuck; no collective yet"), std::string::npos) << said;
  EXPECT_NE(said.find("nanosleep"), std::string::npos) << said;
}

}  // namespace
}  // namespace braid
