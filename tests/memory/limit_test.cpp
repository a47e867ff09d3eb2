// SPDX-License-Identifier: BSD-3-Clause
// A ledger with a limit refuses the block that goes beyond it, keeps the history up to there, and
// counts on as before.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "braid/core/observe.h"
#include "braid/memory/instruments.h"
#include "support/expect.h"

namespace braid::memory {
namespace {

using test::contains;

TEST(Limit, RefusesWhatGoesBeyondAndNamesIt) {
  Ledger ledger;
  ledger.limit(cpu, 10'000);
  const Instruments on({.ledger = &ledger});
  const at::Tensor held = at::empty({1'000});  // 4000 bytes
  mark(held, MemoryKind::parameter, "weights");
  const ModuleScope here("blocks.1");
  try {
    at::empty({1'501});  // 6004 bytes: 4 too many
    FAIL() << "it was not refused";
  } catch (const DoesNotFit& refused) {
    EXPECT_EQ(refused.asked.bytes, 6'004);
    EXPECT_EQ(refused.asked.module, "blocks.1");
    EXPECT_EQ(refused.asked.op, "aten::empty");
    EXPECT_EQ(refused.live, 4'000);
    EXPECT_EQ(refused.limit, 10'000);
    EXPECT_TRUE(contains(refused.what(), "6004 bytes for aten::empty of blocks.1"));
  }
  EXPECT_EQ(ledger.live(cpu), 4'000);
  const at::Tensor fits = at::empty({1'500});  // to the byte
  EXPECT_EQ(ledger.live(cpu), 10'000);
}

TEST(Limit, WhatWasAliveThenIsKnownAfterItIsFreed) {
  Ledger ledger;
  ledger.limit(cpu, 10'000);
  {
    const Instruments on({.ledger = &ledger});
    const at::Tensor a = at::empty({1'000});
    at::empty({1'400});  // gone by then
    const at::Tensor b = at::empty({500});
    EXPECT_THROW(at::empty({2'000}), DoesNotFit);
  }
  EXPECT_EQ(ledger.live(cpu), 0);
  const Peak then = ledger.last(cpu);
  EXPECT_EQ(then.bytes, 6'000);
  ASSERT_EQ(then.alive.size(), 2u);
  EXPECT_EQ(then.alive[0].bytes, 4'000);
  EXPECT_EQ(then.by_kind[static_cast<size_t>(MemoryKind::temporary)], 6'000);
  EXPECT_EQ(ledger.peak(cpu).bytes, 9'600);
  ledger.begin();
  EXPECT_EQ(ledger.last(cpu).bytes, 0);
}

// Nobody refused: the last block that was taken is where a failure of others is looked for.
TEST(Limit, TheLastTakeWithoutARefusal) {
  Ledger ledger;
  {
    const Instruments on({.ledger = &ledger});
    const at::Tensor a = at::empty({1'000});
    const at::Tensor b = at::empty({250});
  }
  EXPECT_EQ(ledger.last(cpu).bytes, 5'000);
}

TEST(Limit, HoldsInTheBackwardPassAndLeavesTheLedgerWhole) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  {
    const at::Tensor weight = at::ones({100, 100}).requires_grad_();
    at::Tensor loss = weight.matmul(weight).matmul(weight).sum();
    ledger.limit(cpu, ledger.live(cpu) + 1'000);
    EXPECT_THROW(loss.backward(), DoesNotFit);
    ledger.limit(cpu, 0);
    ledger.begin();
    at::Tensor again = weight.matmul(weight).sum();
    again.backward();
    EXPECT_EQ(weight.grad().numel(), 10'000);
  }
  EXPECT_EQ(ledger.live(cpu), 0);
}

}  // namespace
}  // namespace braid::memory
