// SPDX-License-Identifier: BSD-3-Clause
// The history of a ledger, block by block: what a page or a snapshot is drawn from.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>

#include "braid/memory/instruments.h"

namespace braid::memory {
namespace {

using What = HistoryEvent::What;

class HistoryOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(RealAndDry, HistoryOf, testing::Bool(),
                         [](const auto& info) { return info.param ? "Dry" : "Real"; });

TEST_P(HistoryOf, SaysWhatBecameOfEachBlock) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = GetParam()});
  const at::Tensor w = at::ones({10, 10}).requires_grad_();
  mark(w, MemoryKind::parameter);
  ledger.begin();
  {
    const ModuleScope here("layers.0");
    const at::Tensor y = w.pow(2).mul(w);  // keeps pow's result
  }
  const History history = ledger.history(cpu);
  ASSERT_GE(history.events.size(), 5U);
  const HistoryEvent& first = history.events.front();
  EXPECT_EQ(first.what, What::before);
  EXPECT_EQ(first.kind, MemoryKind::parameter);
  EXPECT_EQ(first.bytes, 400);
  const HistoryEvent& taken = history.events[1];
  EXPECT_EQ(taken.what, What::taken);
  EXPECT_EQ(taken.kind, MemoryKind::temporary);
  EXPECT_EQ(history.names[taken.module], "layers.0");
  EXPECT_EQ(history.names[taken.op], "aten::pow");
  std::map<uint64_t, std::vector<MemoryKind>> kinds;
  for (const HistoryEvent& event : history.events) kinds[event.block].push_back(event.kind);
  EXPECT_EQ(kinds[taken.block][1], MemoryKind::activation);
  EXPECT_EQ(history.events.back().what, What::freed);
}

TEST_P(HistoryOf, AddsUpToTheTimelineAndThePeak) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = GetParam()});
  const at::Tensor w = at::ones({10, 10}).requires_grad_();
  ledger.begin();
  w.mm(w).pow(2).sum().backward();
  std::map<uint64_t, HistoryEvent> alive;
  int64_t most = 0;
  for (const HistoryEvent& event : ledger.history(cpu).events) {
    if (event.what == What::freed)
      alive.erase(event.block);
    else
      alive[event.block] = event;
    int64_t now = 0;
    for (const auto& [block, last] : alive) now += last.bytes;
    most = std::max(most, now);
  }
  EXPECT_EQ(most, ledger.peak(cpu).bytes);
  KindBytes by_kind = {};
  for (const auto& [block, last] : alive) by_kind[static_cast<size_t>(last.kind)] += last.bytes;
  EXPECT_EQ(by_kind, ledger.timeline(cpu).back().by_kind);
}

}  // namespace
}  // namespace braid::memory
