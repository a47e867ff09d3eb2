// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/counting.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "braid/comm/group.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Kind;

TEST(Counting, EqualsTheRingFormulas) {
  for (const int n : {2, 4, 8, 1024}) {
    const auto traffic = std::make_shared<comm::Traffic>();
    const comm::Group world(comm::counting(comm::dry(1, n), traffic));
    const at::Tensor whole = at::zeros({n * 6}), share = at::zeros({6});
    const double bytes = 24.0 * n, fraction = (n - 1.0) / n;
    world.all_reduce(whole).wait();
    world.all_reduce(whole, comm::Op::mean).wait();
    world.reduce_scatter(share, whole).wait();
    world.all_gather(whole, share).wait();
    world.all_to_all(at::zeros({n * 6}), whole).wait();
    world.broadcast(whole, 0).wait();
    world.send(share, 0).wait();
    world.recv(share, 0).wait();
    world.barrier().wait();
    EXPECT_EQ(traffic->calls(Kind::all_reduce), 2);
    EXPECT_EQ(traffic->bytes(Kind::all_reduce), 2 * bytes);
    EXPECT_EQ(traffic->wire_bytes(Kind::all_reduce), 2 * (2 * fraction * bytes));
    EXPECT_EQ(traffic->wire_bytes(Kind::reduce_scatter), fraction * bytes);
    EXPECT_EQ(traffic->wire_bytes(Kind::all_gather), fraction * bytes);
    EXPECT_EQ(traffic->bytes(Kind::all_gather), bytes) << "the whole, not the share";
    EXPECT_EQ(traffic->wire_bytes(Kind::all_to_all), fraction * bytes);
    EXPECT_EQ(traffic->wire_bytes(Kind::broadcast), bytes);
    EXPECT_EQ(traffic->wire_bytes(Kind::send), 24);
    EXPECT_EQ(traffic->wire_bytes(Kind::recv), 0);
    EXPECT_EQ(traffic->bytes(Kind::recv), 24);
    EXPECT_EQ(traffic->wire_bytes(), (4 + 3) * fraction * bytes + bytes + 24);
  }
}

TEST(Counting, CountsWhatAnUnevenExchangeSends) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(1, 3), traffic));
  world.all_to_all(at::zeros({4, 5}), at::zeros({9, 5}), {1, 3, 0}, {2, 3, 4}).wait();
  EXPECT_EQ(traffic->wire_bytes(), (2 + 4) * 5 * 4);
  EXPECT_EQ(traffic->bytes(Kind::all_to_all), 9 * 5 * 4);
}

TEST(Counting, NamesRanksOfTheWorldAndPositions) {
  int64_t here = 3;
  const auto traffic = std::make_shared<comm::Traffic>([&] { return here; });
  const comm::Group world(comm::counting(comm::dry(6, 8), traffic));
  const comm::Group half = world.split({4, 5, 6, 7}, "half");
  const comm::Group odd = half.split({2, 0}, "odd");  // ranks 6 and 4
  comm::Pending sent = odd.send(at::zeros({2}), 1, 9);
  here = 5;
  half.broadcast(at::zeros({2}), 3).wait();
  here = 8;
  sent.wait();
  const auto entries = traffic->entries();
  ASSERT_EQ(entries.size(), 2);
  EXPECT_EQ(*entries[0].ranks, (std::vector<int>{6, 4}));
  EXPECT_EQ(entries[0].peer, 4);
  EXPECT_EQ(entries[0].tag, 9);
  EXPECT_EQ(entries[0].from, 3);
  EXPECT_EQ(entries[0].until, 8);
  EXPECT_EQ(*entries[1].ranks, (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(entries[1].peer, 7);
  EXPECT_EQ(entries[1].from, 5);
  EXPECT_FALSE(entries[1].on_device);
}

TEST(Counting, KeepsOrderGroupsAndTimes) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(2, 4), traffic, "all"));
  const comm::Group pair = world.split({2, 3}, "pair");
  const at::Tensor a = at::zeros({2}), b = at::zeros({3});
  comm::Pending first = world.all_reduce(a, comm::Op::max);
  pair.broadcast(b, 0).wait();
  EXPECT_EQ(traffic->entries()[0].end, -1) << "under way";
  first.wait();
  const std::vector<comm::TrafficEntry> log = traffic->entries();
  ASSERT_EQ(log.size(), 2U);
  EXPECT_EQ(log[0].group, "all");
  EXPECT_EQ(log[0].op, comm::Op::max);
  EXPECT_EQ(log[1].group, "pair");
  EXPECT_EQ(log[1].size, 2);
  EXPECT_EQ(log[1].order, 1);
  EXPECT_LE(log[0].start, log[1].start);
  EXPECT_LE(log[1].start, log[1].end);
  EXPECT_LE(log[1].end, log[0].end) << "the first call was waited for last";
}

TEST(Counting, OneLogServesAllRanks) {
  const auto traffic = std::make_shared<comm::Traffic>();
  test::on_ranks(4, [&](comm::Group world) {
    const comm::Group counted(comm::counting(world.backend(), traffic));
    for (int i = 0; i < 25; ++i) counted.all_reduce(at::zeros({8})).wait();
  });
  EXPECT_EQ(traffic->calls(Kind::all_reduce), 100);
  EXPECT_EQ(traffic->wire_bytes(), 100 * 2 * 0.75 * 32);
  int64_t order = 0;
  for (const comm::TrafficEntry& entry : traffic->entries()) {
    EXPECT_EQ(entry.order, order++);
    EXPECT_GE(entry.end, entry.start);
  }
}

TEST(Counting, ALogClearedWhileACallIsUnderWayForgetsIt) {
  const auto traffic = std::make_shared<comm::Traffic>();
  const comm::Group world(comm::counting(comm::dry(0, 2), traffic));
  comm::Pending before = world.barrier();
  traffic->clear();
  world.send(at::zeros({1}), 1).wait();
  before.wait();
  ASSERT_EQ(traffic->entries().size(), 1U);
  EXPECT_EQ(traffic->entries()[0].kind, Kind::send);
}

}  // namespace
}  // namespace braid
