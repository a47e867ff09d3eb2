// SPDX-License-Identifier: BSD-3-Clause
// A segment that does not come to the same a second time is named, with what differs.
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>

#include "braid/memory/instruments.h"
#include "memory/recompute_stack.h"
#include "support/expect.h"

namespace braid::memory {
namespace {

using test::contains;
using test::error_of;
using test_stack::drawn;

std::string error_in(const SegmentForward& forward, bool check = false) {
  const at::Tensor x = drawn({2, 4}, 0.3).requires_grad_();
  const at::Tensor loss = recompute(forward, {x}, {.name = "blocks.3", .check = check}).sum();
  return error_of([&] { loss.backward(); });
}

TEST(RecomputeError, ABlockThatCountsItsCallsSavesOtherShapes) {
  const std::string text = error_in([calls = 0](const auto& in) mutable {
    ++calls;
    return in[0].narrow(0, 0, calls).exp().sum();
  });
  EXPECT_TRUE(contains(text, "segment blocks.3, computed again in the backward pass")) << text;
  EXPECT_TRUE(contains(text,
                       "value 1 of 1 is Float [2, 4] on cpu, in the forward pass it was "
                       "Float [1, 4] on cpu"));
  EXPECT_TRUE(contains(text, "both runs must save the same tensors"));
  EXPECT_TRUE(contains(text, "a function of its inputs and parameters"));
}

TEST(RecomputeError, AnotherDtype) {
  const std::string text = error_in([calls = 0](const auto& in) mutable {
    return in[0].to(calls++ == 0 ? c10::kFloat : c10::kDouble).exp();
  });
  EXPECT_TRUE(contains(text,
                       "value 1 of 1 is Double [2, 4] on cpu, in the forward pass it was "
                       "Float [2, 4] on cpu"));
}

TEST(RecomputeError, FewerValues) {
  const std::string text = error_in([calls = 0](const auto& in) mutable {
    const at::Tensor y = in[0].exp();
    return calls++ == 0 ? y.exp().exp() : y;
  });
  EXPECT_TRUE(contains(text, "blocks.3")) << text;
  EXPECT_TRUE(contains(text, "saves 1 tensors for the backward pass, the first time 3"));
  EXPECT_TRUE(contains(text, "the next would be Float [2, 4] on cpu"));
}

TEST(RecomputeError, RandomNumbersOfAnotherNumber) {
  const std::string text = error_in([calls = 0](const auto& in) mutable {
    const at::Tensor noise = at::rand({1 + calls++, 4});
    return in[0].narrow(0, 0, noise.size(0)).mul(noise).exp().sum();
  });
  EXPECT_TRUE(contains(text,
                       "value 1 of 2 is Float [2, 4] on cpu, in the forward pass it was "
                       "Float [1, 4] on cpu"));
}

TEST(RecomputeError, OtherValuesOfTheSameShapeAreFoundByTheCheck) {
  at::Generator own = at::make_generator<at::CPUGeneratorImpl>(3);  // not torch's default one
  const auto noisy = [own](const auto& in) { return in[0].mul(at::rand({2, 4}, own)).exp(); };
  const std::string text = error_in(noisy, /*check=*/true);
  EXPECT_TRUE(contains(text, "segment blocks.3")) << text;
  EXPECT_TRUE(contains(text, "value 1 of 2, Float [2, 4] on cpu, has other bits"));
  EXPECT_TRUE(contains(text, "gradients would belong to other values than the loss"));
  EXPECT_TRUE(contains(text, "from torch's default generators"));
}

TEST(RecomputeError, TheCheckSeesOneBitAndTheOrderOfStridedValues) {
  for (const bool change : {false, true}) {
    const at::Tensor x = drawn({2, 3}, 0.3).requires_grad_();
    const at::Tensor loss =
        recompute(
            [=, calls = 0](const auto& in) mutable {
              const at::Tensor whole = drawn({4, 6}, 1);
              if (change && calls++ == 1) whole.select(0, 3).select(0, 2).add_(1e-7);
              return in[0].mul(whole.t().narrow(1, 1, 3).narrow(0, 1, 2)).exp();  // strides 1, 6
            },
            {x}, {.check = true})
            .sum();
    if (change)
      EXPECT_TRUE(contains(error_of([&] { loss.backward(); }), "value 1 of 2"));
    else
      EXPECT_NO_THROW(loss.backward());
  }
}

TEST(RecomputeError, TheCheckLetsDryTensorsPass) {
  const Instruments on({.dry = true});
  const at::Tensor x = drawn({2, 4}, 0.3).requires_grad_();
  const auto block = [](const auto& in) { return in[0].mul(at::rand({2, 4})).exp(); };
  EXPECT_NO_THROW(recompute(block, {x}, {.check = true}).sum().backward());
}

template <class Thrown>
SegmentForward throws_at_the_second_run(Thrown error) {
  return [error, calls = 0](const auto& in) mutable {
    if (calls++ == 1) throw error;
    return in[0].exp();
  };
}

TEST(RecomputeError, WhatTheSecondRunThrowsReachesTheCallerOfBackward) {
  const std::string text = error_in(throws_at_the_second_run(
      CommError({.what = "rank 3 is gone", .why = "it was killed", .fix = "start again"})));
  EXPECT_TRUE(contains(text, "segment blocks.3, computed again in the backward pass: rank 3 is"));
  EXPECT_TRUE(contains(text, "start again"));
  EXPECT_TRUE(contains(error_in(throws_at_the_second_run(std::runtime_error("broken pipe"))),
                       "segment blocks.3, computed again in the backward pass: broken pipe"));
}

TEST(RecomputeError, KeepsItsType) {
  const at::Tensor x = drawn({2, 4}, 0.3).requires_grad_();
  const auto backward_of = [&](const SegmentForward& forward) {
    recompute(forward, {x}, {.name = "blocks.3"}).sum().backward();
  };
  const CommError lost({.what = "rank 3 is gone", .why = "", .fix = ""});
  EXPECT_THROW(backward_of(throws_at_the_second_run(lost)), CommError);
  const c10::OutOfMemoryError full({__func__, __FILE__, __LINE__}, "out of memory");
  try {
    backward_of(throws_at_the_second_run(full));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const c10::OutOfMemoryError& error) {
    EXPECT_TRUE(contains(error.what(), "segment blocks.3"));
  }
}

TEST(RecomputeError, AlsoFromTheEnginesThread) {
  const Instruments on({.dry = true});
  const at::Tensor x = drawn({2, 4}, 0.3).to(c10::Device(c10::kCUDA, 0)).requires_grad_();
  const at::Tensor loss = recompute(throws_at_the_second_run(std::runtime_error("broken pipe")),
                                    {x}, {.name = "blocks.3"})
                              .sum();
  EXPECT_TRUE(contains(error_of([&] { loss.backward(); }), "segment blocks.3"));
}

TEST(RecomputeError, AnInputThatIsChangedInPlace) {
  const at::Tensor x = drawn({2, 4}, 0.3).requires_grad_();
  EXPECT_TRUE(contains(error_of([&] {
                         recompute([](const auto& in) { return in[0].mul_(2).exp(); }, {x.add(1)},
                                   {.name = "blocks.3"});
                       }),
                       "input 1 of segment blocks.3 was changed in place by the segment itself"));
  at::Tensor h = x.add(1);
  const at::Tensor loss =
      recompute([](const auto& in) { return in[0].exp(); }, {h}, {.name = "blocks.3"}).sum();
  h.detach().mul_(2);
  EXPECT_TRUE(contains(error_of([&] { loss.backward(); }),
                       "input 1 of segment blocks.3 was changed in place between the forward and"));
}

TEST(RecomputeError, AValueThatIsChangedInPlaceAfterItWasSaved) {
  const std::string text = error_in([](const auto& in) {
    const at::Tensor y = in[0].exp();  // keeps y
    const at::Tensor z = y.mul(2);
    y.detach().mul_(2);
    return z.sin();
  });
  EXPECT_TRUE(contains(text, "value 1, Float [2, 4] on cpu, was changed in place")) << text;
}

TEST(RecomputeError, ABudgetWithoutAPlan) {
  EXPECT_TRUE(contains(error_of([] { Recompute({.what = Again::budget}); }), "without a plan"));
}

}  // namespace
}  // namespace braid::memory
