// SPDX-License-Identifier: BSD-3-Clause
// The byte ledger on real and dry tensors: the same numbers, by hand.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <thread>

#include "braid/memory/instruments.h"

namespace braid::memory {
namespace {

int64_t bytes_of(const Peak& peak, MemoryKind kind) {
  return peak.by_kind[static_cast<size_t>(kind)];
}

class LedgerOf : public testing::TestWithParam<bool> {
 protected:
  bool dry() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(RealAndDry, LedgerOf, testing::Bool(),
                         [](const auto& info) { return info.param ? "Dry" : "Real"; });

TEST_P(LedgerOf, CountsLiveAndPeak) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  at::Tensor a = at::zeros({1000});
  {
    const at::Tensor b = at::zeros({500});
  }
  EXPECT_EQ(ledger.live(cpu), 4000);
  EXPECT_EQ(ledger.highest(cpu), 6000);
  EXPECT_EQ(ledger.peak(cpu).bytes, 6000);
  a.reset();
  EXPECT_EQ(ledger.live(cpu), 0);
  ledger.begin();
  EXPECT_EQ(ledger.highest(cpu), 0);
}

TEST_P(LedgerOf, AnActivationIsWhatASavedVariableHolds) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  const at::Tensor w = at::ones({10, 10}).requires_grad_();
  mark(w, MemoryKind::parameter);
  const at::Tensor x = at::ones({10, 10});
  mark(x, MemoryKind::input);
  ledger.begin();
  at::Tensor y = x.mm(w);     // keeps x for the gradient of w
  at::Tensor z = y.pow(2);    // keeps y
  at::Tensor loss = z.sum();  // keeps nothing
  const Peak held = ledger.peak(cpu);
  EXPECT_EQ(bytes_of(held, MemoryKind::parameter), 400);
  EXPECT_EQ(bytes_of(held, MemoryKind::input), 400);
  EXPECT_EQ(bytes_of(held, MemoryKind::activation), 400);     // y
  EXPECT_EQ(bytes_of(held, MemoryKind::temporary), 400 + 4);  // z and the loss
  y.reset();
  loss.backward();
  mark(w.grad(), MemoryKind::gradient);
  loss.reset(), z.reset();
  ledger.begin();
  const Peak after = ledger.peak(cpu);
  EXPECT_EQ(bytes_of(after, MemoryKind::gradient), 400);
  EXPECT_EQ(after.bytes, 1200);
}

TEST_P(LedgerOf, ThePeakKnowsWhatWasAliveAndWhoTookIt) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  const ModuleScope model("model");
  at::Tensor big, small = at::zeros({10});
  {
    const ModuleScope inner("model.big");
    big = at::zeros({300});
  }
  const Peak peak = ledger.peak(cpu);
  ASSERT_EQ(peak.alive.size(), 2u);
  EXPECT_EQ(peak.alive[0].bytes, 1200);
  EXPECT_EQ(peak.alive[0].module, "model.big");
  EXPECT_EQ(peak.by_module.at("model"), 40);
  EXPECT_EQ(peak.module, "model.big");
  EXPECT_FALSE(peak.op.empty());
}

TEST_P(LedgerOf, TheBackwardPassBelongsToTheModuleOfTheForwardPass) {
  Ledger ledger;
  OperatorLog log;
  const Instruments on({.ledger = &ledger, .log = &log, .dry = dry()});
  const at::Tensor w = at::ones({4, 4}).requires_grad_();
  at::Tensor y;
  {
    const ModuleScope first("first");
    y = w.mm(w);
    const ModuleScope second("second");
    y = y.sin();
  }
  y.sum().backward();
  int in_first = 0, in_second = 0;
  for (const Operator& op : log.operators()) {
    if (op.backward && op.name == "aten::mm") in_first += op.module == "first";
    if (op.backward && op.name == "aten::cos") in_second += op.module == "second";
  }
  EXPECT_EQ(in_first, 2);
  EXPECT_EQ(in_second, 1);
}

TEST_P(LedgerOf, AScopeSaysWhatMemoryIsFor) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  at::Tensor buffer;
  {
    const MemoryScope communication(MemoryKind::communication);
    buffer = at::zeros({25});
  }
  const at::Tensor other = at::zeros({5});
  EXPECT_EQ(bytes_of(ledger.peak(cpu), MemoryKind::communication), 100);
  EXPECT_EQ(bytes_of(ledger.peak(cpu), MemoryKind::temporary), 20);
  ledger.begin();
  EXPECT_EQ(bytes_of(ledger.peak(cpu), MemoryKind::other), 20);
}

TEST_P(LedgerOf, TheTimelineEndsWhereTheLedgerStands) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  const at::Tensor a = at::zeros({100});
  {
    const at::Tensor b = a.add(1);
  }
  const std::vector<Moment> moments = ledger.timeline(cpu);
  ASSERT_GE(moments.size(), 3u);
  int64_t most = 0;
  for (const Moment& moment : moments) {
    int64_t sum = 0;
    for (const int64_t bytes : moment.by_kind) sum += bytes;
    most = std::max(most, sum);
  }
  EXPECT_EQ(most, ledger.peak(cpu).bytes);
  EXPECT_LE(moments.front().seconds, moments.back().seconds);
}

TEST(Ledger, DryDevicesHavePlacesOfTheirOwn) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = true});
  const at::Tensor host = at::zeros({8});
  const at::Tensor device = host.to(c10::Device(c10::kCUDA, 0));
  const at::Tensor pinned = at::empty({4}, at::TensorOptions().pinned_memory(true));
  EXPECT_EQ(ledger.live(cpu), 32);
  EXPECT_EQ(ledger.live(cuda(0)), 32);
  EXPECT_EQ(ledger.live(pinned_host), 16);
  EXPECT_EQ(to_text(cuda(0)), "cuda:0");
}

TEST(Ledger, MemoryMayOutliveItAndThreadsMayFreeIt) {
  at::Tensor survivor;
  {
    Ledger ledger;
    const Instruments on({.ledger = &ledger});
    survivor = at::ones({10});
    at::Tensor freed_elsewhere = at::ones({10});
    std::thread([moved = std::move(freed_elsewhere)]() mutable { moved.reset(); }).join();
    EXPECT_EQ(ledger.live(cpu), 40);
  }
  EXPECT_EQ(survivor.sum().item<float>(), 10);
}

TEST(Ledger, OffCountsNothing) {
  Ledger ledger;
  {
    const Instruments on({.ledger = &ledger});
  }
  const at::Tensor outside = at::zeros({10});
  EXPECT_EQ(ledger.live(cpu), 0);
  EXPECT_EQ(ledger.peak(cpu).bytes, 0);
}

TEST(Ledger, EveryKindHasACategoryOfTheTimelineOfPyTorch) {
  EXPECT_EQ(timeline_category(MemoryKind::master_weight), TimelineCategory::optimizer_state);
  EXPECT_EQ(timeline_category(MemoryKind::workspace), TimelineCategory::temporary);
  EXPECT_EQ(timeline_category(MemoryKind::other), TimelineCategory::unknown);
}

}  // namespace
}  // namespace braid::memory
