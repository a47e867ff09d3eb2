// SPDX-License-Identifier: BSD-3-Clause
// The search itself, over spaces of numbers, against looking at everything.
#include "braid/plan/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace braid::plan {
namespace {

struct RandomSpace {
  explicit RandomSpace(uint64_t seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> share(0, 1);
    const size_t size = 1 + random() % 60;
    const double fitting = share(random);  // some spaces have few that fit, some none
    for (size_t i = 0; i < size; ++i) {
      fits.push_back(share(random) < fitting);
      value.push_back(1 + std::floor(20 * share(random)));    // ties happen
      const bool seen = !fits.back() && share(random) < 0.5;  // the bound knows that it is too big
      bound.push_back(seen ? 0 : value.back() * (1 + share(random) * share(random)));
    }
  }
  Space space() {
    return {.size = value.size(),
            .bound = [this](size_t i) { return bound[i]; },
            .value =
                [this](size_t i) {
                  EXPECT_TRUE(looked_at.insert(i).second) << "evaluated twice";
                  return std::pair<bool, double>(fits[i], value[i]);
                }};
  }
  // Values of all that fit, best first.
  std::vector<double> exhaustive() const {
    std::vector<double> all;
    for (size_t i = 0; i < value.size(); ++i)
      if (fits[i]) all.push_back(value[i]);
    std::sort(all.rbegin(), all.rend());
    return all;
  }

  std::vector<bool> fits;
  std::vector<double> value, bound;
  std::set<size_t> looked_at;
};

TEST(BestFirst, FindsTheExhaustiveOptimumOf50RandomSpaces) {
  size_t all = 0, evaluated = 0;
  for (uint64_t seed = 0; seed < 50; ++seed)
    for (const size_t keep : {1u, 3u, 20u}) {
      RandomSpace random(seed);
      const Best best = best_first(random.space(), keep);
      const std::vector<double> wanted = random.exhaustive();
      ASSERT_EQ(best.order.size(), best.evaluated);
      EXPECT_EQ(best.evaluated, random.looked_at.size());
      EXPECT_LE(best.evaluated, random.value.size());
      for (size_t i = 0; i < std::min(keep, wanted.size()); ++i) {
        ASSERT_LT(i, best.order.size());
        EXPECT_TRUE(random.fits[best.order[i]]);
        EXPECT_EQ(random.value[best.order[i]], wanted[i]) << "seed " << seed << ", place " << i;
      }
      all += random.value.size();
      evaluated += best.evaluated;
    }
  EXPECT_LT(evaluated, all * 2 / 3);  // bounds must have been worth it
}

// Nothing is evaluated whose bound is below what is found; the bound of a choice may come down.
TEST(BestFirst, LooksOnlyAtWhatCouldWin) {
  const std::vector<double> value = {5, 9, 7, 1};
  std::vector<double> bound = {10, 9.5, 8, 6};
  size_t asked = 0;
  const Best best = best_first({.size = 4,
                                .bound =
                                    [&](size_t i) {
                                      if (++asked > 4 && i == 0) bound[0] = 5;
                                      return bound[i];
                                    },
                                .value = [&](size_t i) { return std::pair(true, value[i]); }},
                               1);
  EXPECT_EQ(best.order, (std::vector<size_t>{1}));
}

TEST(BestFirst, StopsWhenTold) {
  size_t evaluated = 0;
  const Best best = best_first({.size = 10,
                                .bound = [](size_t) { return 1.0; },
                                .value =
                                    [&](size_t) {
                                      ++evaluated;
                                      return std::pair(false, 0.0);
                                    },
                                .stop = [&] { return evaluated == 3; }},
                               1);
  EXPECT_EQ(best.evaluated, 3u);
}

TEST(BestFirst, ThoseThatDoNotFitStandLast) {
  const Best best = best_first({.size = 3,
                                .bound = [](size_t i) { return 3.0 - static_cast<double>(i); },
                                .value = [](size_t i) { return std::pair(i == 2, 1.0); }},
                               5);
  EXPECT_EQ(best.order, (std::vector<size_t>{2, 0, 1}));
  EXPECT_TRUE(best_first({.size = 0, .bound = {}, .value = {}}, 1).order.empty());
}

// Numbers in a random graph: it ends where no neighbour is better, and stops when told.
TEST(Climb, EndsWhereNothingNearIsBetter) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> height(40);
    std::vector<std::vector<size_t>> near(40);
    for (size_t i = 0; i < 40; ++i) {
      height[i] = random() % 30;
      for (int k = 0; k < 3; ++k) near[i].push_back(random() % 40);
    }
    size_t asked = 0;
    const Slope slope{.neighbours = [&](size_t here) { return near[here]; },
                      .better =
                          [&](size_t there, size_t here) {
                            ++asked;
                            return height[there] > height[here];
                          }};
    const size_t end = climb(slope, 0);
    EXPECT_GE(height[end], height[0]);
    for (const size_t there : near[end]) EXPECT_LE(height[there], height[end]);
    EXPECT_GE(asked, 3u);
    Slope hurried = slope;
    hurried.stop = [] { return true; };
    EXPECT_EQ(climb(hurried, 0), 0u);
  }
}

TEST(Choice, SaysWhatItIs) {
  Choice choice{.mesh = {.data = 8, .shard = 1, .tensor = 4}, .zero = 1, .micro_batch = 2};
  choice.recompute = memory::Again::blocks;
  EXPECT_EQ(to_text(choice), "data 8 x tensor 4, ZeRO-1, recompute blocks, micro 2");
  choice.mesh.pipeline = 2;
  choice.schedule = parallel::ScheduleKind::zb_h1;
  choice.offload = {"optimizer", "activations"};
  EXPECT_EQ(to_text(choice),
            "data 8 x tensor 4 x pipeline 2, ZeRO-1, recompute blocks, micro 2, zb_h1, offload "
            "optimizer and activations");
  EXPECT_EQ(to_text(Choice{}), "one GPU, micro 1");
}

TEST(Choice, BecomesAConfig) {
  train::RunOptions options;
  options.parallel.split = {1, 2, 1};
  options.memory.delay = 4;
  options.memory.offload = {"optimizer"};
  Choice choice{.mesh = {.data = 2, .shard = 2, .pipeline = 3}, .zero = 2, .micro_batch = 4};
  choice.schedule = parallel::ScheduleKind::interleaved;
  const train::RunOptions applied = apply(options, choice);
  EXPECT_EQ(applied.mesh, choice.mesh);
  EXPECT_EQ(applied.train.zero, 2);
  EXPECT_EQ(applied.train.micro_batch, 4);
  EXPECT_EQ(applied.parallel.chunks, 2);
  EXPECT_TRUE(applied.parallel.split.empty());
  EXPECT_TRUE(applied.memory.offload.empty());
  EXPECT_EQ(applied.memory.delay, 0);
  choice.schedule = parallel::ScheduleKind::one_f_one_b;
  EXPECT_EQ(apply(applied, choice).parallel.chunks, 1);
  EXPECT_EQ(apply(options, choice).parallel.split, (std::vector<int64_t>{1, 2, 1}));
}

}  // namespace
}  // namespace braid::plan
