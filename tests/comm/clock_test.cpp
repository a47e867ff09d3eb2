// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/clock.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "braid/comm/group.h"
#include "support/expect.h"

namespace braid {
namespace {

using comm::Kind;
using comm::VirtualClock;

// All durations are multiples of 1/8, so that sums are exact and == is meant.
struct Durations {
  double forward = 1, backward = 2, message = 0;
};

struct Action {
  char pass;  // F or B
  int micro;
};

std::vector<Action> gpipe(int, int, int m) {
  std::vector<Action> actions;
  for (int i = 0; i < m; ++i) actions.push_back({'F', i});
  for (int i = 0; i < m; ++i) actions.push_back({'B', i});
  return actions;
}

std::vector<Action> one_forward_one_backward(int rank, int p, int m) {
  const int warm_up = std::min(p - rank - 1, m);
  std::vector<Action> actions;
  for (int i = 0; i < warm_up; ++i) actions.push_back({'F', i});
  for (int i = warm_up; i < m; ++i) {
    actions.push_back({'F', i});
    actions.push_back({'B', i - warm_up});
  }
  for (int i = m - warm_up; i < m; ++i) actions.push_back({'B', i});
  return actions;
}

void run_stage(VirtualClock clock, int rank, const std::vector<Action>& actions, Durations take) {
  const comm::Group stages(comm::clocked(clock, rank));
  const at::Tensor buffer = at::zeros({4});
  std::vector<comm::Pending> sends;  // a stage does not wait for what it sends
  for (const Action action : actions) {
    const bool forward = action.pass == 'F';
    const int from = forward ? rank - 1 : rank + 1, to = forward ? rank + 1 : rank - 1;
    if (from >= 0 && from < stages.size()) stages.recv(buffer, from, forward ? 0 : 1).wait();
    clock.run(rank, "compute", forward ? take.forward : take.backward,
              action.pass + std::to_string(action.micro));
    if (to >= 0 && to < stages.size()) sends.push_back(stages.send(buffer, to, forward ? 0 : 1));
  }
}

template <class Schedule>
double makespan(Schedule schedule, int p, int m, Durations take) {
  VirtualClock clock(p, [&](Kind, int64_t bytes, int ranks) {
    EXPECT_EQ(bytes, 16);
    EXPECT_EQ(ranks, 2);
    return take.message;
  });
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < p; ++rank)
    ranks.emplace_back([&, rank] { run_stage(clock, rank, schedule(rank, p, m), take); });
  for (std::thread& rank : ranks) rank.join();
  return clock.makespan();
}

TEST(Clock, PipelinesTakeTheirClosedForm) {
  for (const auto& [p, m] : {std::pair{1, 3}, {2, 1}, {4, 8}, {3, 7}, {8, 32}}) {
    const double ideal = (m + p - 1) * (1.0 + 2.0);
    EXPECT_EQ(makespan(gpipe, p, m, {}), ideal) << p << " stages, " << m << " micro-batches";
    EXPECT_EQ(makespan(one_forward_one_backward, p, m, {}), ideal);
  }
  EXPECT_EQ(makespan(gpipe, 4, 8, {}), 33);  // the number of the literature for F = 1, B = 2
}

TEST(Clock, MessagesOfGpipeAreOnTheWayInAndOut) {
  for (const double d : {0.125, 0.5, 1.0})
    for (const auto& [p, m] : {std::pair{2, 5}, {4, 8}, {5, 3}})
      EXPECT_EQ(makespan(gpipe, p, m, {.message = d}), (m + p - 1) * 3.0 + 2 * (p - 1) * d);
}

// The longest path of 1F1B goes down and up the stages once, 2 (p-1) messages, and once more for
// every further p micro-batches: stage 0 starts micro-batch k + p when micro-batch k has come back.
// A turn over j <= p micro-batches meets 2 (j-1) messages, and no turn loses compute; so the m - 1
// micro-batches after the first add 2 (m - 1 - turns), with as few turns as there can be,
// ceil((m-1) / p).
TEST(Clock, MessagesOf1F1BStandInEveryTurn) {
  for (const double d : {0.125, 0.5, 1.0})
    for (const auto& [p, m] : {std::pair{2, 5}, {4, 8}, {4, 9}, {5, 3}, {3, 16}, {8, 32}}) {
      const int turns = (m - 1 + p - 1) / p;
      EXPECT_EQ(makespan(one_forward_one_backward, p, m, {.message = d}),
                (m + p - 1) * 3.0 + 2 * d * (p - 1 + m - 1 - turns))
          << p << " stages, " << m << " micro-batches, messages of " << d;
    }
}

TEST(Clock, CommunicationBesideComputeTakesTheLongerOfBoth) {
  for (const double compute : {1.0, 5.0}) {
    VirtualClock clock(2, [](Kind, int64_t, int) { return 3.0; });
    for (int rank = 0; rank < 2; ++rank) {
      const comm::Group world(comm::clocked(clock, rank));
      clock.run(rank, "compute", 2, "last layer");
      comm::Pending sum = world.all_reduce(at::zeros({4}));
      clock.run(rank, "compute", compute, "first layer");
      sum.wait();
      clock.run(rank, "compute", 1, "update");
    }
    EXPECT_EQ(clock.makespan(), 2 + std::max(compute, 3.0) + 1);
  }
}

TEST(Clock, OnOneStreamTheyAdd) {
  VirtualClock clock(2, [](Kind, int64_t, int) { return 3.0; });
  for (int rank = 0; rank < 2; ++rank) {
    const comm::Group world(comm::clocked(clock, rank, {.collective = "compute"}));
    comm::Pending sum = world.all_reduce(at::zeros({4}));
    clock.run(rank, "compute", 5, "layer");
  }
  EXPECT_EQ(clock.makespan(), 8);
}

TEST(Clock, ACollectiveBeginsWithItsLastRankAndCostsByItsSize) {
  VirtualClock clock(3, [](Kind kind, int64_t bytes, int ranks) {
    EXPECT_EQ(kind, Kind::all_gather);
    return static_cast<double>(bytes) * ranks;
  });
  for (int rank = 0; rank < 3; ++rank) {
    clock.run(rank, "compute", 10 * rank, "work");
    const comm::Group world(comm::clocked(clock, rank));
    world.all_gather(at::zeros({6}), at::zeros({2})).wait();
  }
  const double end = 20 + 24 * 3;
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(clock.now(rank, "compute"), end);
  const comm::ClockSpan last = clock.spans().back();
  EXPECT_EQ(last, (comm::ClockSpan{2, "comm", "all_gather Float [2] -> [6]", 20, end}));
}

TEST(Clock, ARecvWaitsForTheMessageOrTheMessageForIt) {
  for (const double ready : {1.0, 10.0}) {
    VirtualClock clock(2, [](Kind, int64_t, int) { return 2.0; });
    clock.run(0, "compute", 4, "make");
    comm::Group(comm::clocked(clock, 0)).send(at::zeros({1}), 1).wait();
    clock.run(1, "compute", ready, "other");
    comm::Group(comm::clocked(clock, 1)).recv(at::zeros({1}), 0).wait();
    const double end = std::max(ready, 4.0 + 2.0);
    EXPECT_EQ(clock.now(1, "compute"), end);
    const std::vector<comm::ClockSpan> spans = clock.spans();
    const comm::ClockSpan recv = {1, "recv", "recv Float [1] from rank 0", ready, end};
    EXPECT_EQ(std::count(spans.begin(), spans.end(), recv), 1);
  }
}

TEST(Clock, MarksOrderStreams) {
  VirtualClock clock(1);
  clock.run(0, "copy", 4, "in");
  const comm::ClockMark there = clock.record(0, "copy");
  clock.run(0, "copy", 4, "next");
  clock.run(0, "compute", 1, "other");
  clock.wait(0, "compute", there);
  clock.run(0, "compute", 2, "use");
  EXPECT_EQ(clock.now(0, "compute"), 6);
  EXPECT_EQ(clock.makespan(), 8);
}

TEST(Clock, SplitGroupsMeetAmongThemselves) {
  VirtualClock clock(4, [](Kind, int64_t, int ranks) { return ranks; });
  for (int rank = 0; rank < 4; ++rank) {
    const comm::Group world(comm::clocked(clock, rank));
    const int low = rank < 2 ? 0 : 2;
    clock.run(rank, "compute", rank == 3 ? 7 : 1, "work");
    for (int again = 0; again < 2; ++again)
      world.split({low, low + 1}, "pair").all_reduce(at::zeros({1})).wait();
  }
  EXPECT_EQ(clock.now(0, "compute"), 1 + 2 + 2);
  EXPECT_EQ(clock.now(2, "compute"), 7 + 2 + 2);
}

TEST(Clock, NamesWhatKeepsAScheduleFromEnding) {
  VirtualClock lonely(2);
  const comm::Group world(comm::clocked(lonely, 0));
  world.recv(at::zeros({1}), 1).wait();
  EXPECT_EQ(lonely.now(1, "compute"), 0);
  std::string text = test::error_of([&] { lonely.makespan(); });
  EXPECT_TRUE(
      test::contains(text, "message of group world from rank 1 to rank 0, tag 0, number 0"));
  EXPECT_TRUE(test::contains(text, "rank 0 cannot get past recv Float [1] from rank 1"));

  VirtualClock circle(2);
  for (int rank = 0; rank < 2;
       ++rank) {  // each waits for the other's message before it sends its own
    const comm::Group pair(comm::clocked(circle, rank));
    pair.recv(at::zeros({1}), 1 - rank).wait();
    pair.send(at::zeros({1}), 1 - rank).wait();
  }
  text = test::error_of([&] { circle.spans(); });
  EXPECT_TRUE(test::contains(text, "in a circle"));
}

}  // namespace
}  // namespace braid
