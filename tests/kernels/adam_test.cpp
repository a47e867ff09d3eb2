// SPDX-License-Identifier: BSD-3-Clause
// The update in one pass against torch's fused one, and what it takes besides: gradients of another
// dtype, a factor, copies of the targets.
#include "braid/kernels/adam.h"

#include <gtest/gtest.h>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;

AdamTensors states(int64_t count, c10::ScalarType dtype) {
  AdamTensors all;
  for (const int64_t size : {count, int64_t{1}, int64_t{0}}) {
    all.targets.push_back(drawn({size}, 1, "p").to(dtype));
    all.grads.push_back(drawn({size}, 1, "g").to(dtype));
    all.exp_avgs.push_back(drawn({size}, 1, "m").to(dtype));
    all.exp_avg_sqs.push_back(drawn({size}, 1, "v").square_().to(dtype));
    all.steps.push_back(at::full({}, 3.0, c10::kFloat));
  }
  return all;
}

AdamTensors cloned(const AdamTensors& from) {
  AdamTensors all = from;
  for (auto* list : {&all.targets, &all.grads, &all.exp_avgs, &all.exp_avg_sqs, &all.weights})
    for (at::Tensor& tensor : *list) tensor = tensor.clone();
  return all;
}

void expect_close(const AdamTensors& found, const AdamTensors& wanted, double tolerance) {
  for (size_t i = 0; i < wanted.targets.size(); ++i) {
    EXPECT_TRUE(at::allclose(found.targets[i], wanted.targets[i], tolerance, tolerance));
    EXPECT_TRUE(at::allclose(found.exp_avgs[i], wanted.exp_avgs[i], tolerance, tolerance));
    EXPECT_TRUE(at::allclose(found.exp_avg_sqs[i], wanted.exp_avg_sqs[i], tolerance, tolerance));
  }
}

TEST(Adam, EqualsTorch) {
  for (const auto dtype : {c10::kDouble, c10::kFloat})
    for (const bool decoupled : {false, true}) {
      const AdamTensors found = states(40'001, dtype), wanted = cloned(found);
      adam(found, {.lr = 0.01, .beta2 = 0.95, .decay = 0.1, .decoupled = decoupled});
      const auto torch = [&](auto update) {
        update(wanted.targets, wanted.grads, wanted.exp_avgs, wanted.exp_avg_sqs, at::TensorList{},
               wanted.steps, 0.01, 0.9, 0.95, 0.1, 1e-8, false, false);
      };
      if (decoupled)
        torch([](auto&&... a) { at::_fused_adamw_(a...); });
      else
        torch([](auto&&... a) { at::_fused_adam_(a...); });
      expect_close(found, wanted, dtype == c10::kDouble ? 1e-14 : 2e-6);
    }
}

TEST(Adam, TakesGradientsOfAnotherDtypeAndWritesCopies) {
  for (const auto narrow : {c10::kBFloat16, c10::kHalf}) {
    AdamTensors found = states(1000, c10::kFloat);
    for (at::Tensor& grad : found.grads) grad = grad.to(narrow);
    for (const at::Tensor& target : found.targets)
      found.weights.push_back(at::empty_like(target, narrow));
    AdamTensors wanted = cloned(found);
    for (at::Tensor& grad : wanted.grads) grad = grad.to(c10::kFloat);
    wanted.weights.clear();
    adam(found, {.decay = 0.1});
    adam(wanted, {.decay = 0.1});
    expect_close(found, wanted, 0);
    for (size_t i = 0; i < found.weights.size(); ++i)
      EXPECT_TRUE(found.weights[i].equal(wanted.targets[i].to(narrow)));
  }
}

TEST(Adam, ReadsItsScalarsWhereTheTensorsAre) {
  const AdamTensors found = states(77, c10::kDouble), wanted = cloned(found);
  for (const at::Tensor& grad : wanted.grads) grad.mul_(0.25);
  adam(found, {.lr = 7,
               .lr_there = at::full({}, 0.01, c10::kDouble),
               .factor = at::full({}, 0.25, c10::kFloat),
               .found_inf = at::zeros({})});
  adam(wanted, {.lr = 0.01});
  expect_close(found, wanted, 0);
  const AdamTensors before = cloned(found);
  adam(found, {.found_inf = at::ones({})});
  expect_close(found, before, 0);
}

// All in 16 bits: each number is rounded once, after the update.
TEST(Adam, RoundsSixteenBitsOnce) {
  const AdamTensors found = states(3001, c10::kBFloat16);
  AdamTensors wide = cloned(found);
  for (auto* list : {&wide.targets, &wide.grads, &wide.exp_avgs, &wide.exp_avg_sqs})
    for (at::Tensor& tensor : *list) tensor = tensor.to(c10::kFloat);
  adam(found, {.lr = 0.1});
  adam(wide, {.lr = 0.1});
  for (size_t i = 0; i < found.targets.size(); ++i) {
    EXPECT_TRUE(found.targets[i].equal(wide.targets[i].to(c10::kBFloat16)));
    EXPECT_TRUE(found.exp_avg_sqs[i].equal(wide.exp_avg_sqs[i].to(c10::kBFloat16)));
  }
}

}  // namespace
}  // namespace braid::kernels
