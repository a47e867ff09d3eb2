// SPDX-License-Identifier: BSD-3-Clause
// Gradients with recompute are those without, to the bit, and what runs again is counted.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/memory/instruments.h"
#include "memory/recompute_stack.h"

namespace braid::memory {
namespace {

using test_stack::drawn;
using test_stack::same_bits;
using test_stack::Stack;

int count_of(const OperatorLog& log, const std::string& name, bool recomputed) {
  int count = 0;
  for (const Operator& op : log.operators())
    count += op.name == name && op.recomputed == recomputed;
  return count;
}

std::vector<at::Tensor> trained(Stack& stack, Recompute* again) {
  const at::Tensor x = drawn({3, 8}, 0.5).requires_grad_();
  stack.forward(again, x).sum().backward();
  std::vector<at::Tensor> all = stack.gradients();
  all.push_back(x.grad());
  return all;
}

TEST(Recompute, GradientsAreEqualToTheBitAndBlocksRunTwice) {
  Stack stack(6, 8, true);
  const std::vector<at::Tensor> plain = trained(stack, nullptr);
  for (const int64_t segment : {0, 1, 2, 4, 6, 9}) {
    stack.calls->assign(6, 0);
    Recompute again({.what = Again::blocks, .segment = segment});
    EXPECT_TRUE(same_bits(trained(stack, &again), plain)) << segment;
    EXPECT_EQ(*stack.calls, std::vector<int>(6, 2));
    EXPECT_EQ(again.counts().again, again.counts().segments);
  }
}

TEST(Recompute, KeptMatmulsDoNotRunAgain) {
  Stack stack(5, 8, true);
  const std::vector<at::Tensor> plain = trained(stack, nullptr);
  Recompute again({.what = Again::matmuls});
  OperatorLog log;
  {
    const Instruments on({.log = &log});
    EXPECT_TRUE(same_bits(trained(stack, &again), plain));
  }
  EXPECT_EQ(again.counts().kept, 5);
  EXPECT_EQ(count_of(log, "aten::mm", true), 0);
  EXPECT_EQ(count_of(log, "aten::tanh", true), 5);
  EXPECT_EQ(count_of(log, "aten::tanh", false), 5);
}

// Attention written out: q, k and v, one of which wants no gradient; output in another dtype.
TEST(Recompute, SeveralInputsAndAnotherDtype) {
  const auto attend = [](const std::vector<at::Tensor>& in) {
    const at::Tensor scores = in[0].bmm(in[1].transpose(1, 2)).softmax(-1);
    return scores.bmm(in[2]).to(c10::kBFloat16);
  };
  const auto gradients = [&](bool again, bool keep_matmuls) {
    const at::Tensor q = drawn({2, 5, 4}, 0.1).requires_grad_(), k = drawn({2, 5, 4}, 0.2),
                     v = drawn({2, 5, 4}, 0.3).requires_grad_();
    const at::Tensor out =
        again ? recompute(attend, {q, k, v}, {.keep_matmuls = keep_matmuls}) : attend({q, k, v});
    EXPECT_EQ(out.scalar_type(), c10::kBFloat16);
    out.sum().backward();
    EXPECT_FALSE(k.grad().defined());
    return std::vector<at::Tensor>{out, q.grad(), v.grad()};
  };
  const std::vector<at::Tensor> plain = gradients(false, false);
  EXPECT_TRUE(same_bits(gradients(true, false), plain));
  EXPECT_TRUE(same_bits(gradients(true, true), plain));
}

TEST(Recompute, TheSecondRunEndsWithTheLastValueThatIsWanted) {
  int begun = 0, ended = 0;
  const at::Tensor w = drawn({4, 4}, 0.1).requires_grad_();
  const at::Tensor x = drawn({2, 4}, 0.2).requires_grad_();
  OperatorLog log;
  const Instruments on({.log = &log});
  recompute(
      [&](const auto& in) {
        ++begun;
        const at::Tensor h = in[0].mm(w).sin().mm(w);  // the second product saves before it runs
        ++ended;
        return h.add(1);
      },
      {x})
      .sum()
      .backward();
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(ended, 1);
  EXPECT_EQ(count_of(log, "aten::mm", true), 1);
  EXPECT_EQ(count_of(log, "aten::add", true), 0);
}

TEST(Recompute, ValuesThatNobodyWillAskForAreNotComputedAgain) {
  const at::Tensor x = drawn({4}, 0.2).requires_grad_();
  at::Tensor side;
  int runs = 0;
  OperatorLog log;
  const Instruments on({.log = &log});
  const at::Tensor y = recompute(
      [&](const auto& in) {
        at::Tensor main = in[0].sin();
        if (runs++ == 0)
          side = main.exp();
        else
          main.exp();
        return main;
      },
      {x});
  side.reset();  // its node goes, with what it saved
  y.sum().backward();
  EXPECT_EQ(count_of(log, "aten::sin", true), 0);  // saves its input before it runs
  EXPECT_EQ(count_of(log, "aten::exp", true), 0);
  EXPECT_TRUE(x.grad().equal(x.detach().cos()));
}

TEST(Recompute, ABackwardPassOverAKeptGraphComputesOnceMore) {
  for (const Again what : {Again::blocks, Again::matmuls}) {
    Stack stack(3, 8, true);
    Recompute again({.what = what});
    const at::Tensor loss = stack.forward(&again, drawn({3, 8}, 0.5)).sum();
    loss.backward({}, /*retain_graph=*/true);
    const std::vector<at::Tensor> first = stack.gradients();
    loss.backward();
    EXPECT_TRUE(same_bits(stack.gradients(), first));
    EXPECT_EQ(again.counts().again, 6);
    EXPECT_EQ(again.counts().segments, 3);
  }
}

TEST(Recompute, BackwardMayComeAfterTheRunnerIsGone) {
  Stack stack(2, 8, true);
  const std::vector<at::Tensor> plain = trained(stack, nullptr);
  at::Tensor loss;
  {
    Recompute again({.what = Again::blocks});
    loss = stack.forward(&again, drawn({3, 8}, 0.5).requires_grad_()).sum();
  }
  loss.backward();
  EXPECT_TRUE(same_bits(stack.gradients(), {plain[0], plain[1]}));
}

TEST(Recompute, SegmentsNest) {
  Stack stack(4, 8, true);
  const std::vector<at::Tensor> plain = trained(stack, nullptr);
  const at::Tensor x = drawn({3, 8}, 0.5).requires_grad_();
  stack.calls->assign(4, 0);
  Recompute inner({.what = Again::blocks});
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  const int64_t before = ledger.live(cpu);
  at::Tensor loss =
      recompute([&](const auto& in) { return stack.forward(&inner, in[0]); }, {x}).sum();
  EXPECT_EQ(ledger.live(cpu) - before, 4);  // not even inputs of the inner ones are kept
  loss.backward();
  std::vector<at::Tensor> all = stack.gradients();
  all.push_back(x.grad());
  EXPECT_TRUE(same_bits(all, plain));
  EXPECT_EQ(inner.counts().segments, 4);
  EXPECT_EQ(inner.counts().again, 4);
  EXPECT_LE(*std::max_element(stack.calls->begin(), stack.calls->end()), 3);
}

TEST(Recompute, ABlockMayTakeGradientsItself) {
  const auto slope = [](const std::vector<at::Tensor>& in) {
    const at::Tensor y = in[0].pow(3).sum();
    return torch::autograd::grad({y}, {in[0]}, {}, /*retain_graph=*/true, /*create_graph=*/true)
        .at(0)
        .sin();
  };
  const at::Tensor a = drawn({5}, 1).requires_grad_(), b = drawn({5}, 1).requires_grad_();
  slope({a}).sum().backward();
  recompute(slope, {b}).sum().backward();
  EXPECT_TRUE(a.grad().equal(b.grad()));
}

TEST(Recompute, APassWithoutGradientsRunsOnce) {
  Stack stack(2, 8, true);
  Recompute again({.what = Again::blocks});
  const at::NoGradGuard no_grad;
  stack.forward(&again, drawn({3, 8}, 0.5));
  EXPECT_EQ(again.counts().segments, 0);
}

TEST(Recompute, TheLogTellsTheModuleAndThatItRanAgain) {
  const c10::Device gpu(c10::kCUDA, 0);
  for (const c10::Device device : {c10::Device(c10::kCPU), gpu}) {
    OperatorLog log;
    const Instruments on({.log = &log, .dry = device.is_cuda()});
    const at::Tensor x = drawn({4}, 0.1).to(device).requires_grad_();
    at::Tensor y;
    {
      const ModuleScope outer("first");
      y = recompute(
          [](const auto& in) {
            const ModuleScope inner("first.exp");
            return in[0].exp();
          },
          {x});
    }
    {
      const ModuleScope outer("second");
      y = y.cos();
    }
    y.sum().backward();
    EXPECT_EQ(count_of(log, "aten::exp", false), 1);
    EXPECT_EQ(count_of(log, "aten::exp", true), 1);
    for (const Operator& op : log.operators()) {
      if (op.name == "aten::exp") EXPECT_EQ(op.module, "first.exp");
      if (op.name == "aten::sin" && op.backward) EXPECT_EQ(op.module, "second");
      if (op.name == "aten::mul" && op.backward && !op.recomputed)
        EXPECT_TRUE(op.module == "second" || op.module == "first.exp") << op.module;
    }
  }
}

}  // namespace
}  // namespace braid::memory
