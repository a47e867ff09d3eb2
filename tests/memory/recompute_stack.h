// SPDX-License-Identifier: BSD-3-Clause
// A stack of equal blocks for the tests of recompute, tanh(x w) or relu(x w), and its peak by hand.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "braid/memory/instruments.h"
#include "braid/memory/recompute.h"

namespace braid::memory::test_stack {

inline at::Tensor drawn(at::IntArrayRef sizes, double seed) {  // no generator: also on dry tensors
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::TensorOptions(c10::kFloat)).add(seed).sin().view(sizes);
}

struct Stack {
  std::vector<at::Tensor> weights;
  std::vector<std::string> names;
  std::shared_ptr<std::vector<int>> calls;  // of each block
  bool relu = false;                        // a dry one needs the kernels of braid

  Stack(int64_t blocks, int64_t width, bool trained)
      : calls(std::make_shared<std::vector<int>>(blocks, 0)) {
    for (int64_t i = 0; i < blocks; ++i) {
      weights.push_back(drawn({width, width}, 0.1 * double(i)).requires_grad_(trained));
      names.push_back("blocks." + std::to_string(i));
    }
  }

  at::Tensor block(size_t i, const at::Tensor& x) const {
    ++calls->at(i);
    return relu ? x.mm(weights[i]).relu() : x.mm(weights[i]).tanh();  // both keep their result
  }

  // As nn::run_blocks does it.
  at::Tensor forward(SegmentRunner* runner, at::Tensor x) const {
    for (size_t i = 0; i < weights.size();) {
      const size_t end = i + (runner == nullptr ? 1 : runner->together(names, i));
      const SegmentForward some = [stack = *this, i, end](const std::vector<at::Tensor>& in) {
        at::Tensor flow = in.at(0);
        for (size_t j = i; j < end; ++j) flow = stack.block(j, flow);
        return flow;
      };
      x = run_segment(runner, SegmentKind::blocks, names[i], {x}, some);
      i = end;
    }
    return x;
  }

  std::vector<at::Tensor> gradients() {
    std::vector<at::Tensor> all;
    for (at::Tensor& weight : weights) {
      all.push_back(weight.grad());
      weight.mutable_grad().reset();
    }
    return all;
  }
};

inline bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i)
    same = a[i].defined() && b[i].defined() && a[i].equal(b[i]);
  return same;
}

inline constexpr int64_t rows = 3, width = 8,
                         value = rows * width * 4;  // bytes of a block's output

struct StackRun {
  Again what = Again::blocks;
  int64_t blocks = 16;
  int64_t segment = 1;
  bool trained = false;
  bool dry = false;
  bool relu = false;
  c10::Device device = c10::kCPU;
};

// Most bytes beside what was there before the pass.
inline int64_t peak_of(const StackRun& how) {
  Ledger ledger;
  const Instruments on({.ledger = &ledger, .dry = how.dry});
  Stack stack(how.blocks, width, how.trained);
  stack.relu = how.relu;
  for (at::Tensor& weight : stack.weights)
    weight = weight.detach().to(how.device).requires_grad_(how.trained);
  const at::Tensor x = drawn({rows, width}, 0.5).to(how.device).requires_grad_();
  Recompute again({.what = how.what, .segment = how.segment});
  const Place place = place_of(x.device());
  ledger.begin();
  const int64_t before = ledger.live(place);
  {
    at::Tensor loss = stack.forward(&again, x).sum();
    loss.backward();
  }
  const int64_t most = ledger.peak_without_scratch(place).bytes - before;
  EXPECT_EQ(ledger.live(place) - before, value + (how.trained ? how.blocks * width * width * 4 : 0))
      << "gradients and nothing else stay";
  return most;
}

// d inputs of segments but the first one's, which was there; then of one segment its k outputs, and
// either the gradient that comes in with one product before its tanh, or two gradients.
inline int64_t closed_form(int64_t blocks, int64_t k) {
  const int64_t segments = blocks / k;
  return (segments + k) * value + 4 + 4;  // the loss and its gradient
}

}  // namespace braid::memory::test_stack
