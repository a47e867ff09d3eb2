// SPDX-License-Identifier: BSD-3-Clause
// Bytes of recompute: the closed form of a stack of equal blocks, real and dry, CPU and CUDA keys.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include <map>

#include "braid/memory/instruments.h"
#include "memory/recompute_stack.h"

namespace braid::memory {
namespace {

using test_stack::closed_form;
using test_stack::drawn;
using test_stack::peak_of;
using test_stack::rows;
using test_stack::Stack;
using test_stack::StackRun;
using test_stack::value;
using test_stack::width;

TEST(RecomputePeak, IsTheClosedFormOfSegmentsAndTheirLength) {
  for (const bool dry : {false, true})
    for (const int64_t k : {1, 2, 4, 8, 16})
      EXPECT_EQ(peak_of({.segment = k, .dry = dry}), closed_form(16, k)) << "k = " << k;
}

TEST(RecomputePeak, WithoutItEveryOutputIsKept) {
  EXPECT_EQ(peak_of({.what = Again::none}), 17 * value + 4 + 4);
  EXPECT_EQ(peak_of({.what = Again::attention}), 17 * value + 4 + 4);  // there is none
}

TEST(RecomputePeak, ASearchOverTheLengthOfSegmentsFindsTheSquareRoot) {
  for (const int64_t root : {2, 3, 4, 5}) {
    const int64_t blocks = root * root;
    std::map<int64_t, int64_t> by_peak;
    for (int64_t k = blocks; k >= 1; --k)
      by_peak[peak_of({.blocks = blocks, .segment = k, .dry = true})] = k;
    EXPECT_EQ(by_peak.begin()->first, closed_form(blocks, root));
    EXPECT_EQ(peak_of({.blocks = blocks, .segment = root, .dry = true}), by_peak.begin()->first);
    EXPECT_EQ(peak_of({.blocks = blocks, .segment = 0, .dry = true}), by_peak.begin()->first);
  }
}

TEST(RecomputePeak, IsTheSameOnRealAndOnDryTensors) {
  const c10::Device gpu(c10::kCUDA, 0);
  for (const Again what : {Again::none, Again::blocks, Again::matmuls})
    for (const int64_t segment : {1, 3}) {
      const StackRun how{.what = what, .blocks = 7, .segment = segment, .trained = true};
      StackRun dry = how, dry_gpu = how;
      dry.dry = dry_gpu.dry = true;
      dry_gpu.device = gpu;
      EXPECT_EQ(peak_of(dry), peak_of(how));
      EXPECT_EQ(peak_of(dry_gpu), peak_of(how));  // on the engine's thread
    }
}

TEST(RecomputePeak, InputsAndValuesComputedAgainAreActivations) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  const Stack stack(8, width, false);
  const at::Tensor x = drawn({rows, width}, 0.5).requires_grad_();
  mark(x, MemoryKind::input);
  Recompute again({.what = Again::blocks, .segment = 4});
  ledger.begin();
  at::Tensor loss = stack.forward(&again, x).sum();
  const auto activations = [&] {
    return ledger.peak(cpu).by_kind[static_cast<size_t>(MemoryKind::activation)];
  };
  ledger.begin();
  EXPECT_EQ(activations(), value);  // the second segment's input
  loss.backward();
  EXPECT_GE(activations(), 4 * value);
}

TEST(RecomputePeak, ASavedInputOrParameterCostsNothing) {
  for (const bool dry : {false, true}) {
    Ledger ledger;
    const Instruments on({.ledger = &ledger, .dry = dry});
    const at::Tensor w = drawn({width, width}, 0.1).requires_grad_();
    const at::Tensor x = drawn({rows, width}, 0.5);
    ledger.begin();
    const int64_t before = ledger.live(cpu);
    at::Tensor loss =
        recompute([w](const auto& in) { return in[0].mm(w); }, {x}).sum();  // keeps x and w
    EXPECT_EQ(ledger.live(cpu) - before, 4);
    ledger.begin();
    loss.backward();
    EXPECT_EQ(ledger.peak_without_scratch(cpu).bytes - before, 4 + 4 + width * width * 4);
  }
}

TEST(RecomputePeak, ASegmentThatIsNeverAskedFreesAll) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  const Stack stack(4, width, true);
  const at::Tensor x = drawn({rows, width}, 0.5);
  for (const Again what : {Again::blocks, Again::matmuls}) {
    const int64_t before = ledger.live(cpu);
    Recompute again({.what = what});
    at::Tensor y = stack.forward(&again, x);
    EXPECT_GE(ledger.live(cpu) - before, 4 * value);
    y.reset();
    EXPECT_EQ(ledger.live(cpu), before);
  }
}

// Of two products the first is kept, so that is what the tape adds to the input; what stands behind
// the last saved tensor is not.
TEST(RecomputePeak, EverySecondMatmulIsKept) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  const at::Tensor w = drawn({width, width}, 0.1).requires_grad_();
  const at::Tensor x = drawn({rows, width}, 0.5);
  const auto keep = [&](int products) {
    const int64_t before = ledger.live(cpu);
    const at::Tensor y = recompute(
        [&](const auto& in) {
          at::Tensor flow = in[0];
          for (int i = 0; i < products; ++i) flow = flow.mm(w).sin();
          return flow.mm(w);
        },
        {x}, {.keep_matmuls = true});
    return (ledger.live(cpu) - before) / value - 1;  // without y
  };
  EXPECT_EQ(keep(0), 0);
  EXPECT_EQ(keep(1), 1);
  EXPECT_EQ(keep(2), 1);
  EXPECT_EQ(keep(3), 2);
}

}  // namespace
}  // namespace braid::memory
