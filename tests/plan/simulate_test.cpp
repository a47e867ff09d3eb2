// SPDX-License-Identifier: BSD-3-Clause
// Steps by hand, whose times can be added up on paper. The FLOPs of an operator are its seconds.
#include "braid/plan/simulate.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

#include "braid/parallel/schedule.h"
#include "plan/steps.h"
#include "support/expect.h"

namespace braid::plan {
namespace {

using test::collective;
using test::copy;
using test::layout_of;
using test::one_rank;
using test::op;
using test::prices;
using test::sum;

TEST(Simulate, KernelsOfOneRankRunOneAfterTheOther) {
  RankTrace trace;
  trace.operators = {op(1), op(2), op(4, {.backward = true}),
                     op(3, {.backward = true, .recomputed = true}), op(5, {.module = "optimizer"})};
  const StepTime time = simulate(one_rank(trace), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 15);
  EXPECT_DOUBLE_EQ(time.parts.forward, 3);
  EXPECT_DOUBLE_EQ(time.parts.backward, 4);
  EXPECT_DOUBLE_EQ(time.parts.recompute, 3);
  EXPECT_DOUBLE_EQ(time.parts.optimizer, 5);
  EXPECT_DOUBLE_EQ(time.by_operator.at("aten::mm"), 15);
}

TEST(Simulate, AChainOfSmallKernelsTakesAsLongAsTheirLaunches) {
  RankTrace trace;
  trace.operators.assign(100, op(1e-6));
  Prices slow = prices();
  slow.op = [](const memory::Operator& o) { return OpCost{.seconds = o.flops, .host = 5e-6}; };
  const StepTime time = simulate(one_rank(trace), slow);
  EXPECT_NEAR(time.seconds, 100 * 5e-6 + 1e-6, 1e-15);
  EXPECT_NEAR(time.parts.launch, 100 * 5e-6 - 99 * 1e-6, 1e-15);
  EXPECT_NEAR(time.host_seconds, 100 * 5e-6, 1e-15);
  EXPECT_DOUBLE_EQ(sum(time.parts), time.seconds);
}

// Products that draw 1.2 times the board's power beside streams that draw 0.65 of it: the energy of
// the step decides, and products alone become slower.
TEST(Simulate, AStepTakesAsLongAsItsEnergy) {
  Prices hot = prices();
  hot.op = [](const memory::Operator& o) {
    return OpCost{.seconds = o.flops, .heat = o.backward ? 1.2 : 0.65};
  };
  RankTrace products, mixed, streams;
  products.operators = {op(2, {.backward = true})};
  mixed.operators = {op(1), op(4, {.backward = true})};
  streams.operators = {op(4), op(1, {.backward = true})};
  EXPECT_DOUBLE_EQ(simulate(one_rank(products), hot).seconds, 2.4);
  const StepTime time = simulate(one_rank(mixed), hot);
  EXPECT_DOUBLE_EQ(time.seconds, 0.65 + 4 * 1.2);
  EXPECT_DOUBLE_EQ(time.parts.forward, 1);
  EXPECT_DOUBLE_EQ(simulate(one_rank(streams), hot).seconds, 5);
}

// Three buckets of 2 s each begin after 1, 2 and 3 s of a backward pass of 6 s: the third ends at
// 7 s, one of which nothing hides.
TEST(Simulate, BucketsHideBehindTheBackwardPass) {
  RankTrace trace;
  for (int i = 0; i < 6; ++i) trace.operators.push_back(op(1, {.backward = true}));
  for (int i = 1; i <= 3; ++i) trace.messages.push_back(collective("data", {0, 1}, 2, i, 6));
  const StepTime time = simulate(one_rank(trace, 2), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 7);
  EXPECT_DOUBLE_EQ(time.parts.backward, 6);
  EXPECT_DOUBLE_EQ(time.parts.communication, 1);
  EXPECT_DOUBLE_EQ(time.hidden_communication, 5);
}

TEST(Simulate, ACollectiveThatIsWaitedForAtOnceHidesNothing) {
  RankTrace trace;
  trace.operators = {op(1), op(1)};
  trace.messages = {collective("tensor", {0, 1}, 0.5, 1, 1)};
  const StepTime time = simulate(one_rank(trace, 2), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 2.5);
  EXPECT_DOUBLE_EQ(time.parts.communication, 0.5);
  EXPECT_DOUBLE_EQ(time.hidden_communication, 0);
}

// Gathered a block ahead, weights are there when their block begins, all but the first.
TEST(Simulate, WeightsGatheredABlockAheadCostNothingButTheFirst) {
  RankTrace ahead, late;
  for (int i = 0; i < 8; ++i) {
    ahead.operators.push_back(op(1));
    late.operators.push_back(op(1));
    ahead.messages.push_back(collective("shard", {0, 1}, 0.75, std::max(0, i - 1), i));
    late.messages.push_back(collective("shard", {0, 1}, 0.75, i, i));
  }
  EXPECT_DOUBLE_EQ(simulate(one_rank(ahead, 2), prices()).seconds, 8.75);
  EXPECT_DOUBLE_EQ(simulate(one_rank(late, 2), prices()).seconds, 14);
}

TEST(Simulate, GroupsOnTheSameLinksTakeTurnsAndOthersDoNot) {
  RankTrace trace;
  trace.operators = {op(1), op(1)};
  trace.messages = {collective("a", {0, 1}, 2, 1, 2), collective("b", {0, 1, 2}, 2, 1, 2)};
  EXPECT_DOUBLE_EQ(simulate(one_rank(trace, 8), prices()).seconds, 5);
  trace.messages[1].ranks = {0, 7};  // on two nodes
  EXPECT_DOUBLE_EQ(simulate(one_rank(trace, 8), prices()).seconds, 3);
}

TEST(Simulate, CopiesBesideRunWithTheKernelsAndOthersBetweenThem) {
  RankTrace trace;
  trace.operators = {op(1), op(0), op(1)};
  trace.copies = {copy(1, 1, {.to_host = true, .beside = false})};
  StepTime time = simulate(one_rank(trace), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 3);
  EXPECT_DOUBLE_EQ(time.parts.copies, 1);
  trace.copies = {copy(1, 1, {.to_host = true, .beside = true})};
  time = simulate(one_rank(trace), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 2);
  trace.copies = {copy(1, 3, {.to_host = true, .beside = true})};
  time = simulate(one_rank(trace), prices());
  EXPECT_DOUBLE_EQ(time.seconds, 4);
  EXPECT_DOUBLE_EQ(time.parts.copies, 2);
}

TEST(Simulate, GPipeAndOneFOneBHaveTheTimesOfTheirFormulas) {
  for (const auto kind : {parallel::ScheduleKind::gpipe, parallel::ScheduleKind::one_f_one_b})
    for (const int p : {1, 2, 4, 8})
      for (const int m : {8, 16}) {
        const LayoutRun layout =
            layout_of(parallel::make_schedule({.kind = kind, .ranks = p, .micros = m}), {});
        const StepTime time = simulate(layout, prices());
        EXPECT_DOUBLE_EQ(time.seconds, (m + p - 1) * 3.0) << p << " " << m;
        EXPECT_DOUBLE_EQ(time.parts.bubble, (p - 1) * 3.0) << p << " " << m;
        EXPECT_DOUBLE_EQ(sum(time.parts), time.seconds);
      }
}

TEST(Simulate, EverySchedulesTimeIsThatOfItsOwnClock) {
  using K = parallel::ScheduleKind;
  for (const K kind :
       {K::naive, K::gpipe, K::one_f_one_b, K::interleaved, K::zb_h1, K::zb_h2, K::zb_v})
    for (const double message : {0.0, 0.25}) {
      const int chunks = kind == K::interleaved ? 2 : 1;
      const auto schedule =
          parallel::make_schedule({.kind = kind, .ranks = 4, .micros = 12, .chunks = chunks});
      const parallel::Durations durations = {.forward = 2,
                                             .backward = 4,
                                             .input_backward = 2.5,
                                             .weight_backward = 1.5,
                                             .message = message};
      const StepTime time = simulate(layout_of(schedule, durations), prices());
      EXPECT_NEAR(time.seconds, parallel::simulate(schedule, durations).makespan, 1e-9)
          << schedule.name << " " << message;
      EXPECT_DOUBLE_EQ(sum(time.parts), time.seconds);
    }
}

TEST(Simulate, AMessageThatNobodySendsIsNamed) {
  LayoutRun layout =
      layout_of(parallel::make_schedule(
                    {.kind = parallel::ScheduleKind::one_f_one_b, .ranks = 2, .micros = 3}),
                {});
  std::vector<Message>& first = layout.ranks[0].trace.messages;
  std::erase_if(
      first, [n = 0](const Message& m) mutable { return m.kind == comm::Kind::send && n++ == 2; });
  const std::string error = test::error_of([&] { simulate(layout, prices()); });
  EXPECT_TRUE(test::contains(error, "stage 1"));
  EXPECT_TRUE(test::contains(error, "message 2 with tag 0 from stage 0"));
}

TEST(Simulate, ACollectiveOfAllStagesBeginsWithTheLast) {
  LayoutRun layout =
      layout_of(parallel::make_schedule(
                    {.kind = parallel::ScheduleKind::one_f_one_b, .ranks = 4, .micros = 4}),
                {});
  for (RankRun& rank : layout.ranks) {
    const auto end = static_cast<int64_t>(rank.trace.operators.size());
    rank.trace.messages.push_back(collective("pipeline", {0, 1, 2, 3}, 0.5, end, end));
  }
  const StepTime time = simulate(layout, prices());
  EXPECT_DOUBLE_EQ(time.seconds, 21.5);
  EXPECT_DOUBLE_EQ(time.parts.communication, 0.5);
  layout.ranks[2].trace.messages.pop_back();
  EXPECT_TRUE(test::contains(test::error_of([&] { simulate(layout, prices()); }),
                             "all_reduce number 0 of group pipeline"));
}

TEST(Simulate, SlowDataAndCheckpointsAddWhatTheyHoldUp) {
  RankTrace trace;
  trace.operators = {op(2)};
  LayoutRun layout = one_rank(trace);
  layout.samples = 10;
  Prices machine = prices();
  machine.cluster.host = {.copy_bandwidth = 100, .read_bandwidth = 5, .write_bandwidth = 10};
  EXPECT_DOUBLE_EQ(simulate(layout, machine, {.sample_bytes = 1}).parts.data, 0);
  EXPECT_DOUBLE_EQ(simulate(layout, machine, {.sample_bytes = 2}).parts.data, 2);
  // 400 bytes: 4 s to the host, 40 s to disk of which 20 are hidden behind 10 steps.
  const StepTime time =
      simulate(layout, machine, {.checkpoint_every = 10, .checkpoint_bytes = 400});
  EXPECT_DOUBLE_EQ(time.parts.checkpoint, 2.4);
  EXPECT_DOUBLE_EQ(time.samples_per_second, 10 / 4.4);
}

TEST(Simulate, TheTimelineIsATraceWithAProcessARank) {
  const LayoutRun layout =
      layout_of(parallel::make_schedule(
                    {.kind = parallel::ScheduleKind::one_f_one_b, .ranks = 2, .micros = 2}),
                {.message = 0.5});
  const StepTime time = simulate(layout, prices(), {.timeline = true});
  const nlohmann::json trace = nlohmann::json::parse(to_trace(time));
  std::map<std::string, int> named, drawn;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["args"].contains("name"))
      ++named[event["args"]["name"].get<std::string>()];
    if (event["ph"] == "X") ++drawn[event["name"].get<std::string>()];
  }
  EXPECT_EQ(named["rank 0 (predicted)"], 1);
  EXPECT_EQ(named["rank 1 (predicted)"], 1);
  EXPECT_EQ(named["compute"], 2);
  EXPECT_EQ(named["comm pipeline send"], 2);
  EXPECT_EQ(drawn["ProfilerStep#0"], 2);
  EXPECT_EQ(drawn["## forward ##"], 4);
  EXPECT_EQ(drawn["## backward ##"], 4);
  EXPECT_EQ(drawn["aten::mm"], 8);
}

TEST(Simulate, ManyOperatorsOfManyStagesTakeNoTimeToSpeakOf) {
  parallel::Schedule schedule = parallel::make_schedule(
      {.kind = parallel::ScheduleKind::one_f_one_b, .ranks = 16, .micros = 3'000});
  const LayoutRun layout = layout_of(schedule, {});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_DOUBLE_EQ(simulate(layout, prices()).seconds, 3'015 * 3.0);
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 5);
}

}  // namespace
}  // namespace braid::plan
