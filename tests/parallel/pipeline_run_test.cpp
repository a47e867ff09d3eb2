// SPDX-License-Identifier: BSD-3-Clause
// A pipeline gives what one process gives, whatever the schedule: to the bit.
#include <gtest/gtest.h>

#include <ATen/ops/equal.h>

#include <set>

#include "braid/comm/counting.h"
#include "parallel/pipeline_toy.h"
#include "support/ranks.h"

namespace braid {
namespace {

using parallel::Pipeline;
using parallel::Schedule;
using parallel::ScheduleKind;
using test::Parts;
using test::PartsOptions;

Schedule schedule_for(ScheduleKind kind, int ranks, int micros) {
  const int chunks = kind == ScheduleKind::interleaved ? 2 : 1;
  return parallel::make_schedule(
      {.kind = kind, .ranks = ranks, .micros = micros, .chunks = chunks});
}

struct RunCase {
  ScheduleKind kind;
  int ranks;
};
std::ostream& operator<<(std::ostream& out, const RunCase& c) {
  return out << to_text(c.kind) << " on " << c.ranks;
}

class PipelineRuns : public testing::TestWithParam<RunCase> {};

constexpr ScheduleKind flushing[] = {
    ScheduleKind::naive, ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
    ScheduleKind::zb_h1, ScheduleKind::zb_h2, ScheduleKind::zb_v};

std::vector<RunCase> run_cases() {
  std::vector<RunCase> cases;
  for (const ScheduleKind kind : flushing)
    for (int ranks = 2; ranks <= 4; ++ranks) cases.push_back({kind, ranks});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineRuns, testing::ValuesIn(run_cases()));

void sgd(const std::vector<Param>& params) {
  for (const Param& param : params) param.tensor.detach().sub_(param.tensor.grad(), 0.1);
}

void expect_equal(const std::vector<Param>& mine, const Parts& alone, int rank) {
  for (const Param& param : mine)
    for (const Param& other : alone.params)
      if (other.name == param.name) {
        EXPECT_TRUE(at::equal(param.tensor, other.tensor)) << param.name << " of rank " << rank;
        ASSERT_TRUE(param.tensor.grad().defined()) << param.name << " of rank " << rank;
        EXPECT_TRUE(at::equal(param.tensor.grad(), other.tensor.grad()))
            << "gradient of " << param.name << " of rank " << rank;
      }
}

TEST_P(PipelineRuns, LikeOneProcessToTheBit) {
  const auto [kind, ranks] = GetParam();
  for (const int micros : {1, 2, 3, 8}) {
    const PartsOptions options{.micros = micros};
    Parts alone(options);
    const std::vector<double> losses = alone.alone();
    sgd(alone.params);
    const Schedule schedule = schedule_for(kind, ranks, micros);
    test::on_ranks(ranks, [&](comm::Group world) {
      const auto later = test::deferred_for(schedule);
      Parts model(options, later);
      const auto stages = test::uneven_stages(options.parts, schedule.stages);
      Pipeline pipeline(schedule, world, later);
      std::vector<double> seen;
      pipeline.run(model.work(stages, &seen));
      std::vector<Param> mine;
      for (const int s : schedule.stages_of(world.rank()))
        for (const Param& param : model.params_of(stages[static_cast<size_t>(s)]))
          mine.push_back(param);
      sgd(mine);
      expect_equal(mine, alone, world.rank());
      EXPECT_EQ(seen, schedule.rank_of.back() == world.rank() ? losses : std::vector<double>());
      std::set<const void*> held;
      for (const Param& param : mine) held.insert(param.tensor.unsafeGetTensorImpl());
      for (const Param& param : model.params)
        EXPECT_EQ(param.tensor.grad().defined(),
                  held.count(param.tensor.unsafeGetTensorImpl()) == 1)
            << param.name << " on rank " << world.rank();
      if (later) EXPECT_EQ(later->waiting(), 0);
    });
  }
}

// b s h of each boundary, micro-batch and direction; integers go forward alone.
TEST_P(PipelineRuns, SendsWhatIsCarriedAndNothingElse) {
  const auto [kind, ranks] = GetParam();
  const PartsOptions options{.micros = 3};
  const Schedule schedule = schedule_for(kind, ranks, options.micros);
  test::on_ranks(ranks, [&](comm::Group world) {
    const auto later = test::deferred_for(schedule);
    Parts model(options, later);
    const auto stages = test::uneven_stages(options.parts, schedule.stages);
    const auto traffic = std::make_shared<comm::Traffic>();
    Pipeline pipeline(schedule, comm::Group(comm::counting(world.backend(), traffic)), later);
    pipeline.run(model.work(stages, nullptr));
    int64_t sent = 0, received = 0, messages = 0;
    const int64_t floats = model.all_samples() * (options.width + 2) * 8;
    const int64_t numbers = model.all_samples() * 8;
    for (int boundary = 0; boundary + 1 < schedule.stages; ++boundary) {
      const int below = schedule.rank_of[static_cast<size_t>(boundary)];
      const int above = schedule.rank_of[static_cast<size_t>(boundary) + 1];
      if (below == above) continue;  // handed over in memory
      if (below == world.rank()) sent += floats + numbers, received += floats;
      if (above == world.rank()) sent += floats, received += floats + numbers;
      if (below == world.rank()) messages += 3 * options.micros;
      if (above == world.rank()) messages += 2 * options.micros;
    }
    EXPECT_EQ(traffic->bytes(comm::Kind::send), sent);
    EXPECT_EQ(traffic->bytes(comm::Kind::recv), received);
    EXPECT_EQ(traffic->calls(comm::Kind::send), messages);
    EXPECT_EQ(static_cast<int64_t>(traffic->entries().size()),
              traffic->calls(comm::Kind::send) + traffic->calls(comm::Kind::recv));
  });
}

TEST_P(PipelineRuns, ForwardAloneForAnyNumberOfMicroBatches) {
  const auto [kind, ranks] = GetParam();
  const PartsOptions options{.micros = 5};
  const Parts alone(options);
  const Schedule schedule = schedule_for(kind, ranks, 4);
  test::on_ranks(ranks, [&](comm::Group world) {
    const auto later = test::deferred_for(schedule);
    Parts model(options, later);
    Pipeline pipeline(schedule, world, later);
    const auto outputs = pipeline.forward(
        model.work(test::uneven_stages(options.parts, schedule.stages), nullptr), options.micros);
    const bool last = schedule.rank_of.back() == world.rank();
    ASSERT_EQ(outputs.size(), last ? options.micros : 0);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Carry expected = alone.run({0, options.parts}, {}, static_cast<int>(k));
      ASSERT_EQ(outputs[k].size(), 3);
      for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(outputs[k][i], expected[i]));
      EXPECT_FALSE(outputs[k][0].requires_grad());
    }
  });
}

TEST(PipelineRun, OnOneRankTalksToNobody) {
  for (const ScheduleKind kind : flushing) {
    const PartsOptions options{.micros = 3};
    const Parts alone(options);
    alone.alone();
    const Schedule schedule = schedule_for(kind, 1, options.micros);
    const auto later = test::deferred_for(schedule);
    const Parts model(options, later);
    Pipeline pipeline(schedule, comm::Group(), later);
    pipeline.run(model.work(test::uneven_stages(options.parts, schedule.stages), nullptr));
    expect_equal(model.params, alone, 0);
  }
}

// A second run adds to the gradients of the first; what is frozen has none, and those before it in
// the list get theirs all the same.
TEST(PipelineRun, AddsToGradientsAndPassesFrozenStages) {
  const PartsOptions options{.micros = 3};
  const auto freeze = [](const Parts& parts, const Range& range) {
    for (const Param& param : parts.params_of(range)) param.tensor.requires_grad_(false);
  };
  const auto stages = test::uneven_stages(options.parts, 3);
  for (const size_t frozen : {0, 1, 2}) {
    const Parts expected(options);
    freeze(expected, stages[frozen]);
    expected.alone();
    expected.alone();
    test::on_ranks(3, [&](comm::Group world) {
      const Parts model(options);
      freeze(model, stages[frozen]);
      Pipeline pipeline(schedule_for(ScheduleKind::one_f_one_b, 3, options.micros), world);
      for (int step = 0; step < 2; ++step) pipeline.run(model.work(stages, nullptr));
      const auto mine = model.params_of(stages[static_cast<size_t>(world.rank())]);
      if (static_cast<size_t>(world.rank()) != frozen)
        return expect_equal(mine, expected, world.rank());
      for (const Param& param : mine) EXPECT_FALSE(param.tensor.grad().defined());
    });
  }
}

}  // namespace
}  // namespace braid
