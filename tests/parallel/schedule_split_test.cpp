// SPDX-License-Identifier: BSD-3-Clause
// Blocks over stages: against all possible splits.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "braid/parallel/schedule.h"
#include "support/expect.h"

namespace braid::parallel {
namespace {

constexpr double no_limit = std::numeric_limits<double>::infinity();

struct Stages {
  double cost = 0, memory = 0;  // of the largest
};

Stages largest(const std::vector<double>& costs, const std::vector<double>& memory,
               const std::vector<int64_t>& bounds) {
  Stages worst;
  for (size_t s = 0; s + 1 < bounds.size(); ++s) {
    EXPECT_LT(bounds[s], bounds[s + 1]);
    worst.cost = std::max(
        worst.cost, std::accumulate(costs.begin() + bounds[s], costs.begin() + bounds[s + 1], 0.0));
    worst.memory = std::max(worst.memory, std::accumulate(memory.begin() + bounds[s],
                                                          memory.begin() + bounds[s + 1], 0.0));
  }
  return worst;
}

// Every choice of stages - 1 borders.
double brute_force(const std::vector<double>& costs, const std::vector<double>& memory, int stages,
                   double limit) {
  const auto blocks = static_cast<int64_t>(costs.size());
  double best = no_limit;
  for (int64_t mask = 0; mask < (int64_t{1} << (blocks - 1)); ++mask) {
    std::vector<int64_t> bounds = {0};
    for (int64_t i = 1; i < blocks; ++i)
      if ((mask >> (i - 1) & 1) != 0) bounds.push_back(i);
    bounds.push_back(blocks);
    if (bounds.size() != static_cast<size_t>(stages) + 1) continue;
    const Stages worst = largest(costs, memory, bounds);
    if (worst.memory <= limit) best = std::min(best, worst.cost);
  }
  return best;
}

TEST(SplitBlocks, EqualsBruteForce) {
  std::mt19937 draw(7);
  for (int blocks = 1; blocks <= 14; ++blocks)
    for (int stages = 1; stages <= blocks; stages += 1 + blocks / 6) {
      std::vector<double> costs, memory;
      for (int i = 0; i < blocks; ++i) {
        costs.push_back(1 + static_cast<double>(draw() % 20));
        memory.push_back(1 + static_cast<double>(draw() % 10));
      }
      const auto free = split_blocks(costs, stages);
      ASSERT_EQ(free.size(), static_cast<size_t>(stages) + 1);
      EXPECT_EQ(free.front(), 0);
      EXPECT_EQ(free.back(), blocks);
      EXPECT_EQ(largest(costs, memory, free).cost, brute_force(costs, memory, stages, no_limit));
      const double limit = 8 + static_cast<double>(draw() % 30);
      const double best = brute_force(costs, memory, stages, limit);
      if (best == no_limit) {
        EXPECT_THROW(split_blocks(costs, stages, memory, limit), ConfigError);
        continue;
      }
      const Stages found = largest(costs, memory, split_blocks(costs, stages, memory, limit));
      EXPECT_EQ(found.cost, best);
      EXPECT_LE(found.memory, limit);
    }
}

TEST(SplitBlocks, EvenBlocksGiveEvenStages) {
  EXPECT_EQ(split_blocks(std::vector<double>(12, 1), 4), (std::vector<int64_t>{0, 3, 6, 9, 12}));
  EXPECT_EQ(split_blocks({5, 1, 1, 1, 1, 1}, 2), (std::vector<int64_t>{0, 1, 6}));
  EXPECT_EQ(split_blocks({3, 4}, 1), (std::vector<int64_t>{0, 2}));
}

TEST(SplitBlocks, SpareCostsAreSpread) {  // 10 over 4: nobody is left with one block
  const auto bounds = split_blocks(std::vector<double>(10, 1), 4);
  int64_t least = 10;
  for (size_t s = 0; s < 4; ++s) least = std::min(least, bounds[s + 1] - bounds[s]);
  EXPECT_EQ(least, 2);
}

TEST(SplitBlocks, RefusesWhatCannotBe) {
  const auto refused = [](int stages, const std::vector<double>& memory, double limit) {
    return test::error_of([&] { split_blocks({1, 1, 1}, stages, memory, limit); });
  };
  EXPECT_TRUE(test::contains(refused(4, {}, 0), "4 stages for 3 blocks"));
  EXPECT_TRUE(test::contains(refused(4, {}, 0), "at most 3 stages"));
  EXPECT_TRUE(test::contains(refused(0, {}, 0), "0 stages"));
  EXPECT_TRUE(test::contains(refused(2, {4, 4, 4}, 7), "take more stages"));
  EXPECT_TRUE(test::contains(refused(2, {4, 9, 4}, 7), "largest block alone needs 9"));
  EXPECT_TRUE(test::contains(refused(2, {4, 9}, 7), "memory of 2 blocks"));
}

}  // namespace
}  // namespace braid::parallel
