// SPDX-License-Identifier: BSD-3-Clause
// Results that are kept in one pass and handed out in the next, real and dry, under instruments.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/max.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "braid/core/dry.h"
#include "braid/memory/instruments.h"
#include "braid/memory/tape.h"
#include "support/expect.h"

namespace braid::memory {
namespace {

using test::contains;
using test::error_of;

int calls_of(const OperatorLog& log, const std::string& name) {
  int count = 0;
  for (const Operator& op : log.operators()) count += op.name == name;
  return count;
}

class TapeOf : public testing::TestWithParam<bool> {
 protected:
  bool dry() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(RealAndDry, TapeOf, testing::Bool(),
                         [](const auto& info) { return info.param ? "Dry" : "Real"; });

TEST_P(TapeOf, KeptResultsAreHandedOutInsteadOfComputed) {
  OperatorLog log;
  const Instruments on({.log = &log, .dry = dry()});
  const at::Tensor a = at::ones({4, 4}), b = at::ones({4, 4});
  Tape tape({.each = {"aten::mm"}});
  at::Tensor first, second;
  {
    const TapeScope keep(&tape, TapeMode::record);
    first = at::mm(a.add(1), b).exp();
  }
  EXPECT_EQ(tape.size(), 1u);
  EXPECT_EQ(calls_of(log, "aten::mm"), 1);
  {
    const TapeScope again(&tape, TapeMode::replay);
    second = at::mm(a.add(1), b).exp();
    EXPECT_TRUE(contains(error_of([&] { at::mm(a, b); }), "no result of it was kept"));
  }
  EXPECT_EQ(tape.replayed(), 1u);
  EXPECT_EQ(calls_of(log, "aten::mm"), 1);
  EXPECT_EQ(calls_of(log, "aten::exp"), 2);
  EXPECT_EQ(is_dry(second), dry());
  if (!dry()) EXPECT_TRUE(first.equal(second));
}

TEST_P(TapeOf, TheLedgerCallsThemActivationsAndTheyGoWithTheTape) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  {
    Tape tape({.each = {"aten::exp"}});
    {
      const TapeScope keep(&tape, TapeMode::record);
      at::zeros({100}).exp().add(1);
    }
    EXPECT_EQ(ledger.live(cpu), 400);
    const KindBytes now = ledger.timeline(cpu).back().by_kind;
    EXPECT_EQ(now[static_cast<size_t>(MemoryKind::activation)], 400);
  }
  EXPECT_EQ(ledger.live(cpu), 0);
}

TEST_P(TapeOf, EverySecondOfAKindOfOperators) {
  OperatorLog log;
  const Instruments on({.log = &log, .dry = dry()});
  Tape tape({.each = {"aten::exp"}, .every_second = {"aten::sin", "aten::cos"}});
  const auto five = [x = at::ones({3})] { return x.sin().cos().exp().sin().cos().sin(); };
  {
    const TapeScope keep(&tape, TapeMode::record);
    five();
  }
  EXPECT_EQ(tape.size(), 4u);  // sin, exp, sin, sin
  log.clear();
  const TapeScope again(&tape, TapeMode::replay);
  five();
  EXPECT_EQ(calls_of(log, "aten::sin"), 0);
  EXPECT_EQ(calls_of(log, "aten::exp"), 0);
  EXPECT_EQ(calls_of(log, "aten::cos"), 2);
}

TEST_P(TapeOf, OfSomeOperatorsTheFirstResultAlone) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry()});
  const at::Tensor x = at::ones({4, 25});
  const int64_t before = ledger.live(cpu);
  Tape tape({.each = {"aten::max"}, .first = {"aten::max"}});
  {
    const TapeScope keep(&tape, TapeMode::record);
    EXPECT_TRUE(std::get<1>(at::max(x, 0)).defined());
  }
  EXPECT_EQ(ledger.live(cpu) - before, 100);
  const TapeScope again(&tape, TapeMode::replay);
  const auto [values, places] = at::max(x, 0);
  EXPECT_EQ(values.size(0), 25);
  EXPECT_FALSE(places.defined());
}

TEST_P(TapeOf, ASecondReplayComputesWhatWasHandedOut) {
  const Instruments on({.dry = dry()});
  const at::Tensor x = at::ones({3});
  Tape tape({.each = {"aten::exp"}});
  const auto pass = [&](TapeMode mode) {
    const TapeScope scope(&tape, mode);
    return x.exp();
  };
  const at::Tensor first = pass(TapeMode::record);
  for (int i = 0; i < 2; ++i) {
    const at::Tensor again = pass(TapeMode::replay);
    EXPECT_EQ(again.sizes(), first.sizes());
    if (!dry()) EXPECT_TRUE(again.equal(first));
  }
  EXPECT_EQ(tape.replayed(), 1u);
}

TEST(Tape, AResultThatWasWrittenToIsComputed) {
  const at::Tensor x = at::ones({3, 3}), w = at::ones({3, 3});
  const auto block = [&] { return x.mm(w).view({9}).add_(1); };
  Tape tape({.each = {"aten::mm"}});
  at::Tensor first, second;
  {
    const TapeScope keep(&tape, TapeMode::record);
    first = block();
  }
  {
    const TapeScope again(&tape, TapeMode::replay);
    second = block();
  }
  EXPECT_EQ(tape.replayed(), 0u);
  EXPECT_EQ(second.sum().item<float>(), 36);
  EXPECT_TRUE(first.equal(second));
}

TEST(Tape, AnotherOperatorThanBeforeIsNamed) {
  const at::Tensor x = at::ones({3});
  Tape tape({.each = {"aten::exp", "aten::sin"}});
  {
    const TapeScope keep(&tape, TapeMode::record);
    x.exp();
  }
  const TapeScope again(&tape, TapeMode::replay);
  EXPECT_TRUE(contains(error_of([&] { x.sin(); }),
                       "operator 0 of the second pass is aten::sin, of the first pass aten::exp"));
}

TEST(Tape, NeedsNoInstruments) {
  const at::Tensor x = at::arange(3.0);
  Tape tape({.each = {"aten::exp"}});
  {
    const TapeScope keep(&tape, TapeMode::record);
    x.exp();
    const TapeScope none(nullptr, TapeMode::record);
    x.exp();
  }
  EXPECT_EQ(tape.size(), 1u);
  x.exp();
  EXPECT_EQ(tape.size(), 1u);
}

}  // namespace
}  // namespace braid::memory
