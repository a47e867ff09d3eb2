// SPDX-License-Identifier: BSD-3-Clause
// Values that wait on the host: the same gradients to the bit, and bytes by hand.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <functional>
#include <vector>

#include "braid/core/rng.h"
#include "braid/memory/instruments.h"
#include "braid/memory/stash.h"

namespace braid::memory::test_stash {
namespace {

constexpr int64_t rows = 64, width = 32, layers = 5;
constexpr int64_t value_bytes = rows * width * 4;
const c10::Device stash_gpu(c10::kCUDA, 0);

at::Tensor drawn(at::IntArrayRef sizes, std::string_view name) {
  at::Tensor values = at::empty(sizes);
  fill_normal(values, random_key(3, name));
  return values;
}

// x <- tanh(x w), layer by layer: the input and each layer's result wait, layers + 1 values.
struct Stack {
  explicit Stack(c10::Device device = c10::kCPU, bool values = true) {
    for (int64_t i = 0; i < layers; ++i) {
      const at::Tensor w = values ? drawn({width, width}, "w" + std::to_string(i)).mul_(0.2)
                                  : at::zeros({width, width}, at::TensorOptions().device(device));
      weights.push_back(w.requires_grad_());
    }
  }

  at::Tensor forward(at::Tensor x) const {
    for (const at::Tensor& w : weights) x = x.mm(w).tanh();
    return x;
  }

  std::vector<at::Tensor> weights;
};

std::vector<at::Tensor> gradients(const std::function<at::Tensor()>& forward,
                                  const std::vector<at::Tensor>& of, Stash* stash) {
  for (const at::Tensor& w : of) w.mutable_grad().reset();
  at::Tensor loss;
  if (stash == nullptr) {
    loss = forward().square().sum();
  } else {
    const SavedScope kept(*stash);
    loss = forward().square().sum();
  }
  loss.backward();
  std::vector<at::Tensor> grads;
  for (const at::Tensor& w : of) grads.push_back(w.grad());
  return grads;
}

void expect_equal(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
}

class StashWindow : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(OfTensors, StashWindow, testing::Values(1, 2, 3, 100));

TEST_P(StashWindow, GradientsAreThoseWithoutToTheBitAndTrafficIsTheSumOfBytes) {
  const int64_t window = GetParam();
  const Stack stack;
  const at::Tensor x = drawn({rows, width}, "x");
  const auto forward = [&] { return stack.forward(x); };
  const auto wanted = gradients(forward, stack.weights, nullptr);
  const auto stash = make_stash({.offload = true, .window = window, .smallest = 0});
  expect_equal(gradients(forward, stack.weights, stash.get()), wanted);
  // Each value once, though two nodes keep it; the last ones are still there when they are wanted.
  EXPECT_EQ(stash->traffic().to_host, (layers + 1) * value_bytes);
  EXPECT_EQ(stash->traffic().to_device, std::max<int64_t>(layers + 1 - window, 0) * value_bytes);
}

TEST(Stash, ViewsComeBackWithTheirSizesAndOrderOfMemory) {
  const at::Tensor w = drawn({width, width}, "w").requires_grad_();
  const at::Tensor x = drawn({rows, 3 * width}, "x").requires_grad_();
  const auto forward = [&] {
    const at::Tensor y = x.mul(2);
    const at::Tensor q = y.narrow(1, 0, width), k = y.narrow(1, width, width);  // with gaps
    const at::Tensor scores = q.mm(w).mm(k.t());
    return scores.mul(y.t().mm(y).sum()).add(x.sum().expand({rows, rows}).sigmoid());
  };
  const auto wanted = gradients(forward, {w, x}, nullptr);
  const auto stash = make_stash({.offload = true, .window = 1, .smallest = 0});
  expect_equal(gradients(forward, {w, x}, stash.get()), wanted);

  const at::Tensor y = drawn({6, 8}, "y");
  const at::Tensor gaps = y.narrow(1, 1, 3).t();
  const auto put = stash->put(gaps), turned = stash->put(y.t());
  EXPECT_TRUE(at::equal(put->take(), gaps));
  EXPECT_EQ(put->take().strides(), (c10::IntArrayRef{1, 3}));
  EXPECT_EQ(turned->take().strides(), y.t().strides());
}

TEST(Stash, TheSameMemoryMovesOnce) {
  const auto stash = make_stash({.offload = true, .smallest = 0});
  at::Tensor x = drawn({4, 8}, "x");
  const auto first = stash->put(x), again = stash->put(x.view({32})), turned = stash->put(x.t());
  EXPECT_EQ(stash->traffic().to_host, 128);
  const at::Tensor before = x.clone();
  x.add_(1);  // another value from now on
  const auto changed = stash->put(x);
  EXPECT_EQ(stash->traffic().to_host, 256);
  for (int i = 0; i < 3; ++i) const auto pushed_out = stash->put(drawn({8}, "other"));
  EXPECT_TRUE(at::equal(first->take(), before));
  EXPECT_TRUE(at::equal(again->take(), before.view({32})));
  EXPECT_TRUE(at::equal(turned->take(), before.t()));
  EXPECT_TRUE(at::equal(changed->take(), x));
}

TEST(Stash, MemoryThatIsUsedAgainIsAnotherValue) {
  const auto stash = make_stash({.offload = true, .window = 1, .smallest = 0});
  std::vector<std::shared_ptr<Stashed>> all;
  for (int i = 0; i < 50; ++i) all.push_back(stash->put(at::ones({64}).mul_(i)));
  for (int i = 0; i < 50; ++i) EXPECT_EQ(all[static_cast<size_t>(i)]->take()[7].item<float>(), i);
}

TEST(Stash, ParametersSmallAndExpandedValuesStay) {
  const at::Tensor held = drawn({64, 64}, "held");
  const auto stash =
      make_stash({.offload = true, .smallest = 1024, .stays = [&](const at::Tensor& x) {
                    return x.is_alias_of(held);
                  }});
  const at::Tensor w = drawn({64, 64}, "w").requires_grad_();
  for (const at::Tensor& value :
       {w, w.t(), held, held.t(), drawn({255}, "small"), drawn({1, 8}, "wide").expand({99, 8})}) {
    const auto put = stash->put(value);
    EXPECT_TRUE(put->take().is_alias_of(value));
  }
  EXPECT_EQ(stash->put(at::Tensor())->take().defined(), false);
  EXPECT_EQ(stash->traffic().to_host, 0);
  const auto moved = stash->put(drawn({256}, "large"));
  EXPECT_EQ(stash->traffic().to_host, 1024);
}

TEST(Stash, AGraphThatIsNotRunIsFreed) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger});
  const Stack stack;
  const at::Tensor x = drawn({rows, width}, "x");
  const auto stash = make_stash({.offload = true, .smallest = 0});
  const int64_t before = ledger.live(cpu);
  {
    const SavedScope kept(*stash);
    stack.forward(x);
  }
  EXPECT_EQ(ledger.live(cpu), before);
}

TEST(Stash, ABackwardPassMayRunTwice) {
  const Stack stack;
  const at::Tensor x = drawn({rows, width}, "x");
  const auto stash = make_stash({.offload = true, .smallest = 0});
  at::Tensor loss;
  {
    const SavedScope kept(*stash);
    loss = stack.forward(x).sum();
  }
  loss.backward({}, /*retain_graph=*/true);
  const at::Tensor once = stack.weights[0].grad().clone();
  loss.backward();
  EXPECT_TRUE(at::equal(stack.weights[0].grad(), once.mul(2)));
}

// The device holds the window alone, page-locked memory all of it.
TEST(Stash, OnADryGpuBytesGoToTheHost) {
  at::ones({2}).requires_grad_().sum().backward();  // a plain pass before must not matter
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = true});
  const Stack stack(stash_gpu, /*values=*/false);
  at::Tensor loss;
  const auto stash = make_stash({.offload = true, .window = 2, .smallest = 0, .device = stash_gpu});
  const int64_t weights = layers * width * width * 4;
  {
    const SavedScope kept(*stash);
    loss = stack.forward(at::zeros({rows, width}, at::TensorOptions().device(stash_gpu))).sum();
  }
  EXPECT_EQ(ledger.live(cuda()), weights + 2 * value_bytes + 4);
  EXPECT_EQ(ledger.live(pinned_host), (layers + 1) * value_bytes);
  // Two that wait, what the operator takes and what it gives.
  EXPECT_EQ(ledger.highest(cuda()), weights + 4 * value_bytes);
  const KindBytes held = ledger.timeline(pinned_host).back().by_kind;
  EXPECT_EQ(held[static_cast<size_t>(MemoryKind::activation)], (layers + 1) * value_bytes);
  loss.backward();
  loss.reset();
  EXPECT_EQ(ledger.live(cuda()), 2 * weights);  // and their gradients
  EXPECT_EQ(ledger.live(pinned_host), 0);
  EXPECT_EQ(stash->traffic().to_device, (layers + 1 - 2) * value_bytes);
}

int64_t counted_peak(bool dry) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = dry});
  const Stack stack(c10::kCPU, /*values=*/false);
  const auto stash = make_stash({.offload = true, .window = 2, .smallest = 0});
  at::Tensor loss;
  {
    const SavedScope kept(*stash);
    loss = stack.forward(at::zeros({rows, width})).sum();
  }
  loss.backward();
  return ledger.highest(cpu);
}

TEST(Stash, ADryRunCountsWhatARealOneTakes) { EXPECT_EQ(counted_peak(true), counted_peak(false)); }

TEST(Stash, ScopesNestTheInnermostCounts) {
  const auto outer = make_stash({.offload = true, .smallest = 0});
  const auto inner = make_stash({.offload = true, .smallest = 0});
  const Stack stack;
  const at::Tensor x = drawn({rows, width}, "x");
  const SavedScope outside(*outer);
  {
    const SavedScope inside(*inner);
    stack.forward(x);
  }
  EXPECT_EQ(outer->traffic().to_host, 0);
  EXPECT_EQ(inner->traffic().to_host, (layers + 1) * value_bytes);
}

}  // namespace
}  // namespace braid::memory::test_stash
