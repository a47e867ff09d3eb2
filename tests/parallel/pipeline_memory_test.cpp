// SPDX-License-Identifier: BSD-3-Clause
// What a rank of a pipeline keeps: as many micro-batches as the schedule says, and nothing after.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "braid/memory/instruments.h"
#include "parallel/pipeline_toy.h"

namespace braid {
namespace {

using memory::Instruments;
using memory::Ledger;
using parallel::Act;
using parallel::Action;
using parallel::Pipeline;
using parallel::Schedule;
using parallel::ScheduleKind;
using test::Parts;
using test::PartsOptions;

int64_t activation_now(const Ledger& ledger) {
  return ledger.timeline(memory::cpu).back().by_kind[static_cast<size_t>(MemoryKind::activation)];
}

int64_t most_activation(const Ledger& ledger) {
  int64_t bytes = 0;
  for (const memory::Moment& moment : ledger.timeline(memory::cpu))
    bytes = std::max(bytes, moment.by_kind[static_cast<size_t>(MemoryKind::activation)]);
  return bytes;
}

// What autograd keeps of one stage and micro-batch.
int64_t kept_by_a_pass(const Parts& model, const Range& stage, int micro) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  Carry input;
  for (const CarrySpec& spec : model.carried(micro)) {
    input.push_back(at::zeros(spec.shape, spec.dtype));
    if (c10::isFloatingType(spec.dtype)) input.back().requires_grad_();
  }
  const Carry output = model.run(stage, input, micro);
  if (stage.end < model.options.parts) return activation_now(ledger);
  const at::Tensor loss = model.loss(output);
  return activation_now(ledger);
}

struct MemoryCase {
  ScheduleKind kind;
  int chunks = 1;
};
class PipelineMemory : public testing::TestWithParam<MemoryCase> {};
INSTANTIATE_TEST_SUITE_P(Schedules, PipelineMemory,
                         testing::Values(MemoryCase{ScheduleKind::naive},
                                         MemoryCase{ScheduleKind::gpipe},
                                         MemoryCase{ScheduleKind::one_f_one_b},
                                         MemoryCase{ScheduleKind::interleaved, 2}));

// The largest sum over the micro-batches that are between their forward and their backward.
int64_t expected_activation(const Parts& model, const Schedule& schedule, int rank,
                            const std::vector<Range>& stages) {
  int64_t now = 0, most = 0;
  for (const Action& action : schedule.lists[static_cast<size_t>(rank)]) {
    const bool forward = action.act == Act::forward;
    if (!forward && action.act != Act::backward) continue;
    const int64_t bytes =
        kept_by_a_pass(model, stages[static_cast<size_t>(action.stage)], action.micro);
    now += forward ? bytes : -bytes;
    most = std::max(most, now);
  }
  return most;
}

TEST_P(PipelineMemory, HoldsTheMicroBatchesInFlight) {
  const auto [kind, chunks] = GetParam();
  const PartsOptions options{.width = 16, .micro = 5, .micros = 8};
  const Schedule schedule =
      parallel::make_schedule({.kind = kind, .ranks = 4, .micros = 8, .chunks = chunks});
  const auto stages = test::uneven_stages(options.parts, schedule.stages);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const Parts model(options);
    Ledger ledger;
    {
      const Instruments on({.ledger = &ledger});
      Pipeline pipeline(schedule, comm::Group(comm::dry(rank, schedule.ranks)));
      pipeline.run(model.work(stages, nullptr));
    }
    EXPECT_EQ(most_activation(ledger), expected_activation(model, schedule, rank, stages)) << rank;
    int64_t gradients = 0;
    for (const int s : schedule.stages_of(rank))
      for (const Param& param : model.params_of(stages[static_cast<size_t>(s)]))
        gradients += param.tensor.numel() * 8;
    EXPECT_EQ(ledger.live(memory::cpu), gradients) << "nothing else is left on rank " << rank;
    // In flight: what is kept, and once more what is carried (until the next rank has it), and a
    // few buffers of messages and of the pass that runs.
    const int64_t boundary = options.micro * (options.width + 3) * 8;
    const int flying = parallel::simulate(schedule).in_flight[static_cast<size_t>(rank)];
    const int64_t pass = kept_by_a_pass(model, stages.back(), 0);
    EXPECT_LE(ledger.highest(memory::cpu),
              most_activation(ledger) + gradients + (flying + 4) * boundary + 2 * pass);
  }
}

// ZB-H1 keeps no more than 1F1B's p micro-batches; ZB-H2 pays with memory.
TEST(PipelineMemory, OfASplitBackwardIsBoundedByTheSchedule) {
  const PartsOptions options{.width = 16, .micro = 5, .micros = 12};
  for (const ScheduleKind kind : {ScheduleKind::zb_h1, ScheduleKind::zb_h2}) {
    const Schedule schedule =
        parallel::make_schedule({.kind = kind, .ranks = 4, .micros = options.micros});
    const auto stages = test::uneven_stages(options.parts, schedule.stages);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto later = std::make_shared<kernels::Deferred>();
      const Parts model(options, later), plain(options);
      Ledger ledger;
      {
        const Instruments on({.ledger = &ledger});
        Pipeline pipeline(schedule, comm::Group(comm::dry(rank, schedule.ranks)), later);
        pipeline.run(model.work(stages, nullptr));
      }
      const int flying = parallel::simulate(schedule).in_flight[static_cast<size_t>(rank)];
      const int64_t one = kept_by_a_pass(plain, stages[static_cast<size_t>(rank)], 0);
      EXPECT_LE(most_activation(ledger), flying * one) << schedule.name << " rank " << rank;
      EXPECT_GT(most_activation(ledger), 0);
      int64_t gradients = 0;
      for (const Param& param : model.params_of(stages[static_cast<size_t>(rank)]))
        gradients += param.tensor.numel() * 8;
      EXPECT_EQ(ledger.live(memory::cpu), gradients) << schedule.name << " rank " << rank;
    }
  }
}

}  // namespace
}  // namespace braid
