// SPDX-License-Identifier: BSD-3-Clause
// Seconds of collectives and copies against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/plan/cost.h"
#include "plan/two_nodes.h"
#include "support/expect.h"

namespace braid::test {
namespace {

plan::Message message(comm::Kind kind, std::vector<int> ranks, int64_t bytes, int peer = -1) {
  plan::Message m;
  m.kind = kind;
  m.group = "g";
  m.ranks = std::move(ranks);
  m.bytes = bytes;
  m.peer = peer;
  return m;
}

TEST(Messages, RingsAndTreesInsideANode) {
  const plan::CostModel model(two_nodes());
  const std::vector<int> four = {0, 1, 2, 3};
  const double rate = 50e9;
  const int64_t big = 1 << 30;
  // 2 (n-1) latency + 2 (n-1)/n bytes / rate
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_reduce, four, big)), 6e-6 + 1.5 * big / rate,
              1e-9);
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_gather, four, big)), 3e-6 + 0.75 * big / rate,
              1e-9);
  EXPECT_EQ(model.seconds(message(comm::Kind::reduce_scatter, four, big)),
            model.seconds(message(comm::Kind::all_gather, four, big)));
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_to_all, four, big)), 3e-6 + 0.75 * big / rate,
              1e-9);
  EXPECT_NEAR(model.seconds(message(comm::Kind::broadcast, four, big)), 2e-6 + big / rate, 1e-9);
  // Small: a tree of 2 log2(4) steps.
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_reduce, four, 4)), 4e-6, 1e-9);
  EXPECT_EQ(model.seconds(message(comm::Kind::all_reduce, {2}, big)), 0);
}

TEST(Messages, TwoTiersBetweenNodes) {
  const plan::CostModel model(two_nodes());
  const std::vector<int> eight = {0, 1, 2, 3, 4, 5, 6, 7};
  const double inside = 50e9, between = 10e9, big = 1 << 30;
  // Four links between the nodes carry a ring of all eight: 40 GB/s, less than 50 inside.
  const double ring = 2 * (10e-6 + 6e-6) + 2 * 7.0 / 8 * big / (4 * between);
  const double levels = 2 * (3e-6 + 0.75 * big / inside) + 2 * (10e-6 + 0.5 * big / 4 / between);
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_reduce, eight, 1 << 30)),
              std::min(ring, levels), 1e-9);
  // One rank a node: each has the share of a GPU.
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_gather, {1, 5}, 1 << 30)),
              10e-6 + 0.5 * big / between, 1e-9);
  EXPECT_NEAR(model.seconds(message(comm::Kind::all_to_all, eight, 1 << 30)),
              16e-6 + std::max(big * 3 / 8 / inside, big * 4 / 8 / between), 1e-9);
}

TEST(Messages, TakeTheLinkBetweenTheirRanks) {
  const plan::CostModel model(two_nodes());
  const plan::Message near = message(comm::Kind::send, {0, 2, 4, 6}, 1 << 20, 2);
  const plan::Message far = message(comm::Kind::send, {0, 2, 4, 6}, 1 << 20, 4);
  EXPECT_NEAR(model.seconds(near, 0), 1e-6 + (1 << 20) / 50e9, 1e-12);
  EXPECT_NEAR(model.seconds(far, 2), 10e-6 + (1 << 20) / 10e9, 1e-12);
  EXPECT_EQ(model.seconds(far), model.seconds(far, 2));  // from the stage before
  EXPECT_EQ(model.seconds(message(comm::Kind::recv, {0, 2}, 1 << 20, 0)), 0);
}

TEST(Messages, LinksThatNobodySaidAreAsked) {
  plan::Cluster alone = two_nodes();
  alone.inside = alone.between = {};
  alone.host.copy_bandwidth = 0;
  const plan::CostModel model(alone);
  EXPECT_TRUE(
      contains(error_of([&] { (void)model.seconds(message(comm::Kind::all_reduce, {0, 1}, 8)); }),
               "inside.bandwidth is missing"));
  EXPECT_TRUE(
      contains(error_of([&] { (void)model.seconds(message(comm::Kind::all_reduce, {0, 4}, 8)); }),
               "between.bandwidth is missing"));
  EXPECT_TRUE(contains(error_of([&] { (void)model.copy_seconds(8); }), "host.copy_bandwidth"));
  EXPECT_NEAR(plan::CostModel(two_nodes()).copy_seconds(1 << 30), 5e-6 + (1 << 30) / 10e9, 1e-9);
}

}  // namespace
}  // namespace braid::test
