// SPDX-License-Identifier: BSD-3-Clause
// What a pipeline tells others: when gradients are whole, when weights are used.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <map>

#include "braid/parallel/replicate.h"
#include "parallel/pipeline_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Act;
using parallel::Action;
using parallel::Pipeline;
using parallel::PipelineWork;
using parallel::Schedule;
using parallel::ScheduleKind;
using test::Parts;
using test::PartsOptions;

constexpr ScheduleKind hooked[] = {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                   ScheduleKind::interleaved, ScheduleKind::zb_h1,
                                   ScheduleKind::zb_v};

Schedule hooked_schedule(ScheduleKind kind, int ranks, int micros) {
  const int chunks = kind == ScheduleKind::interleaved ? 2 : 1;
  return parallel::make_schedule(
      {.kind = kind, .ranks = ranks, .micros = micros, .chunks = chunks, .gathers = true});
}

// Two replicas of a pipeline of two ranks: sums start with the last micro-batch of each stage,
// while the others still run.
TEST(PipelineHooks, LetReplicasSumTheLastGradients) {
  constexpr int micros = 4;
  for (const ScheduleKind kind : hooked) {
    const Parts alone({.micros = 2 * micros});
    alone.alone();
    test::on_ranks(4, [&](comm::Group world) {
      const int replica = world.rank() / 2, place = world.rank() % 2;
      const comm::Group line = world.split({2 * replica, 2 * replica + 1}, "pipeline");
      const comm::Group data = world.split({place, place + 2}, "data");
      const Schedule schedule =
          parallel::make_schedule({.kind = kind,
                                   .ranks = 2,
                                   .micros = micros,
                                   .chunks = kind == ScheduleKind::interleaved ? 2 : 1});
      const auto later = test::deferred_for(schedule);
      Parts model({.micros = 2 * micros}, later);
      const auto stages = test::uneven_stages(9, schedule.stages);
      std::vector<Param> mine;
      for (const int s : schedule.stages_of(place))
        for (const Param& param : model.params_of(stages[static_cast<size_t>(s)]))
          mine.push_back(param);
      parallel::Replicate replicas(mine, data, {.bucket_bytes = 512, .average = false});
      const int first = replica * micros;
      const PipelineWork all = model.work(stages, nullptr);
      PipelineWork work = all;
      work.forward = [&](int stage, const Carry& carry, int micro) {
        return all.forward(stage, carry, first + micro);
      };
      work.carried = [&](int stage, int micro) { return all.carried(stage, first + micro); };
      work.before_backward = [&](int, int, bool last) { replicas.hold(!last); };
      Pipeline(schedule, line, later).run(work);
      replicas.finish();
      for (const Param& param : mine)
        for (const Param& other : alone.params)
          if (other.name == param.name)
            EXPECT_LE(param.tensor.grad().sub(other.tensor.grad()).abs().max().item<double>(),
                      1e-12)
                << param.name << " with " << to_text(kind);
    });
  }
}

TEST(PipelineHooks, StandWhereTheScheduleHasThem) {
  for (const ScheduleKind kind : hooked) {
    const Schedule schedule = hooked_schedule(kind, 2, 3);
    const auto later = test::deferred_for(schedule);
    const Parts model({.micros = 3}, later);
    const auto stages = test::uneven_stages(9, schedule.stages);
    std::vector<Action> seen, expected;
    std::map<std::pair<int, int>, int> lasts;  // of a stage and a kind of pass
    PipelineWork work = model.work(stages, nullptr);
    work.forward = [&, inner = work.forward](int stage, const Carry& carry, int micro) {
      seen.push_back({Act::forward, stage, micro});
      return inner(stage, carry, micro);
    };
    work.gather = [&](int stage) { seen.push_back({Act::gather, stage, 0}); };
    work.release = [&](int stage) { seen.push_back({Act::release, stage, 0}); };
    work.before_backward = [&](int stage, int micro, bool last) {
      seen.push_back({Act::backward, stage, micro});
      EXPECT_EQ(last, micro == 2) << "each stage has them in order";
      lasts[{stage, 0}] += last ? 1 : 0;
    };
    Pipeline(schedule, comm::Group(comm::dry(1, 2)), later).run(work);
    for (Action action : schedule.lists[1]) {
      const bool weights = action.act == Act::gather || action.act == Act::release;
      if (!weights && !computes(action.act)) continue;
      if (weights) action.micro = 0;
      if (computes(action.act) && action.act != Act::forward) action.act = Act::backward;
      expected.push_back(action);
    }
    EXPECT_EQ(seen, expected) << schedule.name;
    for (const auto& [stage, count] : lasts) EXPECT_EQ(count, schedule.splits_backward() ? 2 : 1);

    seen.clear();
    Pipeline(schedule, comm::Group(comm::dry(1, 2)), later).forward(work, 2);
    int there = 0;
    for (const Action& action : seen) {
      there += action.act == Act::gather ? 1 : action.act == Act::release ? -1 : 0;
      EXPECT_GE(there, action.act == Act::forward ? 1 : 0);
      EXPECT_LE(there, 1);
    }
    EXPECT_EQ(there, 0);
  }
}

}  // namespace
}  // namespace braid
