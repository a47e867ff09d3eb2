// SPDX-License-Identifier: BSD-3-Clause
// Head and cross-entropy in one go against the layer and the loss one after the other.
#include "braid/kernels/head_loss.h"

#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <limits>

#include "braid/kernels/cross_entropy.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

struct HeadCase {
  at::Tensor x, weight, target;
};

HeadCase head_case(int64_t rows, int64_t classes, c10::ScalarType dtype,
                   c10::ScalarType weight_dtype) {
  HeadCase c;
  c.x = test::drawn({rows, 6}, 1, "x").to(dtype).requires_grad_(true);
  c.weight = test::drawn({classes, 6}, 1, "w").to(weight_dtype).requires_grad_(true);
  c.target = test::drawn({rows}, 1, "t").abs().mul(1000).to(c10::kLong).remainder(classes);
  if (rows > 3) c.target[2] = -100;
  return c;
}

at::Tensor as_before(const HeadCase& c) {
  const at::Tensor scores = at::linear(c.x, c.weight.to(c.x.scalar_type()));
  return cross_entropy(scores, c.target, -100).sum();
}

void expect_equal(const HeadCase& found, const HeadCase& wanted, double tolerance) {
  EXPECT_TRUE(at::allclose(found.x.grad(), wanted.x.grad(), tolerance, tolerance));
  EXPECT_TRUE(at::allclose(found.weight.grad(), wanted.weight.grad(), tolerance, tolerance));
  EXPECT_EQ(found.weight.grad().scalar_type(), found.weight.scalar_type());
}

TEST(HeadLoss, EqualsLayerAndLossInAnyPieces) {
  for (const int64_t classes : {1, 7, 33})
    for (const int64_t rows : {1, 5, 64})
      for (const int64_t at_once : {0, 1, 3, 64}) {
        const HeadCase found = head_case(rows, classes, c10::kDouble, c10::kDouble);
        const HeadCase wanted = head_case(rows, classes, c10::kDouble, c10::kDouble);
        const at::Tensor sum = head_loss(found.x, found.weight, found.target, {.rows = at_once});
        const at::Tensor before = as_before(wanted);
        EXPECT_TRUE(at::allclose(sum, before, 1e-13, 1e-13));
        sum.mul(0.37).backward();
        before.mul(0.37).backward();
        expect_equal(found, wanted, 1e-13);
      }
}

TEST(HeadLoss, KeepsTheWeightsGradientInItsDtype) {
  const HeadCase found = head_case(64, 33, c10::kBFloat16, c10::kFloat);
  const HeadCase wanted = head_case(64, 33, c10::kDouble, c10::kDouble);
  head_loss(found.x, found.weight, found.target, {.rows = 16}).div(63).backward();
  as_before(wanted).div(63).backward();
  EXPECT_EQ(found.weight.grad().scalar_type(), c10::kFloat);
  EXPECT_TRUE(at::allclose(found.weight.grad().to(c10::kDouble), wanted.weight.grad(), 2e-2, 1e-3));
  EXPECT_TRUE(at::allclose(found.x.grad().to(c10::kDouble), wanted.x.grad(), 2e-2, 1e-3));
}

TEST(HeadLoss, WeightsMayBeWiderThanSums) {
  const HeadCase found = head_case(64, 33, c10::kFloat, c10::kDouble);
  const HeadCase wanted = head_case(64, 33, c10::kDouble, c10::kDouble);
  head_loss(found.x, found.weight, found.target, {.rows = 16}).div(63).backward();
  as_before(wanted).div(63).backward();
  EXPECT_TRUE(at::allclose(found.weight.grad(), wanted.weight.grad(), 1e-5, 1e-7));
  EXPECT_TRUE(at::allclose(found.x.grad().to(c10::kDouble), wanted.x.grad(), 1e-5, 1e-7));
}

// fp16: the gradient of a mean over many rows would vanish, of a scaled sum overflow.
TEST(HeadLoss, ExpectsAScaledGradient) {
  const HeadCase found = head_case(64, 33, c10::kHalf, c10::kHalf);
  const HeadCase wanted = head_case(64, 33, c10::kDouble, c10::kDouble);
  const at::Tensor scale = at::full({}, 1024.0, c10::kFloat);
  head_loss(found.x, found.weight, found.target, {.scale = scale}).div(63).mul(scale).backward();
  as_before(wanted).div(63).mul(1024).backward();
  EXPECT_TRUE(at::allclose(found.weight.grad().to(c10::kDouble), wanted.weight.grad(), 1e-2, 5e-2));
}

TEST(HeadLoss, CountsNothingWhereNothingCounts) {
  const HeadCase c = head_case(5, 7, c10::kFloat, c10::kFloat);
  c.target.fill_(-100);
  const at::Tensor sum = head_loss(c.x, c.weight, c.target, {});
  EXPECT_EQ(sum.item<double>(), 0);
  sum.backward();
  EXPECT_EQ(c.weight.grad().abs().sum().item<double>(), 0);
  const HeadCase none = head_case(0, 7, c10::kFloat, c10::kFloat);
  head_loss(none.x, none.weight, none.target, {}).backward();
  EXPECT_EQ(none.weight.grad().abs().sum().item<double>(), 0);
}

TEST(HeadLoss, WantsNoGradientsOfWhatHasNone) {
  const HeadCase c = head_case(5, 7, c10::kFloat, c10::kFloat);
  const at::Tensor frozen = c.weight.detach();
  head_loss(c.x, frozen, c.target, {}).backward();
  EXPECT_TRUE(c.x.grad().defined());
  const c10::NoGradGuard no_grad;
  EXPECT_FALSE(head_loss(c.x, c.weight, c.target, {}).requires_grad());
}

TEST(CrossEntropyInPlace, LeavesIgnoredRowsWithoutGradientWhateverTheyHold) {
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor scores = at::full({2, 4}, -infinity, c10::kDouble);
  scores[1].fill_(1);
  const at::Tensor losses = at::empty({2}, c10::kDouble), target = at::zeros({2}, c10::kLong);
  target[0] = -100;
  cross_entropy_in_place(scores, losses, target, at::full({}, 2.0, c10::kDouble), -100);
  EXPECT_EQ(scores[0].abs().sum().item<double>(), 0);
  EXPECT_EQ(losses[0].item<double>(), 0);
  EXPECT_NEAR(losses[1].item<double>(), std::log(4), 1e-15);
  EXPECT_NEAR(scores[1][0].item<double>(), -1.5, 1e-15);
}

TEST(HeadRows, AreAPureFunctionOfTheSizes) {
  EXPECT_EQ(head_rows(65536, 50257, 2), 16384);
  EXPECT_EQ(head_rows(16384, 128256, 2), 4096);
  EXPECT_EQ(head_rows(100, 50257, 2), 100);
  EXPECT_EQ(head_rows(0, 50257, 2), 1);
}

}  // namespace
}  // namespace braid::kernels
