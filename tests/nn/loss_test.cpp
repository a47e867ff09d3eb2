// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/loss.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/core/rng.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

at::Tensor loss_noise(at::IntArrayRef sizes, std::string_view name) {
  at::Tensor x = at::empty(sizes, c10::kDouble);
  fill_normal(x, random_key(7, name));
  return x;
}

TEST(Loss, FieldLossesAreTheirFormulas) {
  const at::Tensor p = at::tensor({3.0, 0.0, 1.0, 1.0}).view({2, 1, 1, 2}),
                   t = at::tensor({0.0, 4.0, 1.0, 3.0}).view({2, 1, 1, 2});
  EXPECT_DOUBLE_EQ(loss(Loss::relative_l2, p, t).item<double>(),
                   (5.0 / 4 + 2 / std::sqrt(10.0)) / 2);
  EXPECT_DOUBLE_EQ(loss(Loss::l1, p, t).item<double>(), (3.0 + 4 + 0 + 2) / 4);
  EXPECT_DOUBLE_EQ(loss(Loss::mse, p, t).item<double>(), (9.0 + 16 + 0 + 4) / 4);
  EXPECT_TRUE(loss_by_sample(Loss::l1, p, t).equal(at::tensor({3.5, 1.0})));
}

TEST(Loss, ASampleHasTheSameLossInAnyBatch) {
  const at::Tensor p = loss_noise({5, 2, 3, 4}, "p"), t = loss_noise({5, 2, 3, 4}, "t");
  for (const Loss kind : {Loss::relative_l2, Loss::l1, Loss::mse}) {
    const at::Tensor whole = loss_by_sample(kind, p, t);
    const at::Tensor parts = at::cat({loss_by_sample(kind, p.narrow(0, 0, 2), t.narrow(0, 0, 2)),
                                      loss_by_sample(kind, p.narrow(0, 2, 3), t.narrow(0, 2, 3))});
    EXPECT_TRUE(whole.allclose(parts, 1e-14, 0));
    EXPECT_NEAR(loss(kind, p, t).item<double>(), whole.mean().item<double>(), 1e-15);
  }
}

TEST(Loss, CrossEntropyMeansOverCountedTargets) {
  const at::Tensor scores = loss_noise({2, 3, 5}, "scores").requires_grad_();
  const at::Tensor target = at::tensor({4L, -100L, 0L, -100L, -100L, 2L}).view({2, 3});
  const at::Tensor logs = at::log_softmax(scores.detach(), -1);
  const double first = -(logs[0][0][4].item<double>() + logs[0][2][0].item<double>()),
               second = -logs[1][2][2].item<double>();
  const at::Tensor value = loss(Loss::cross_entropy, scores, target);
  EXPECT_NEAR(value.item<double>(), (first + second) / 3, 1e-14);
  EXPECT_TRUE(loss_by_sample(Loss::cross_entropy, scores, target)
                  .allclose(at::tensor({first, second}), 1e-13, 0));
  value.backward();
  EXPECT_EQ(scores.grad()[0][1].abs().sum().item<double>(), 0)
      << "an ignored target pulls at nothing";
  EXPECT_GT(scores.grad()[0][0].abs().sum().item<double>(), 0);
  EXPECT_EQ(loss(Loss::cross_entropy, scores, target.clone().fill_(-100)).item<double>(), 0)
      << "no target: 0, not NaN";
}

TEST(Loss, IsComputedInSingleOrBetter) {
  const at::Tensor p = loss_noise({2, 3}, "p"), t = loss_noise({2, 3}, "t");
  EXPECT_EQ(loss(Loss::l1, p.to(c10::kBFloat16), t.to(c10::kFloat)).scalar_type(), c10::kFloat);
  EXPECT_EQ(loss(Loss::l1, p, t).scalar_type(), c10::kDouble);
  const at::Tensor rounded = t.to(c10::kFloat);
  EXPECT_EQ(loss(Loss::relative_l2, p, rounded).item<double>(),
            loss(Loss::relative_l2, p, rounded.to(c10::kDouble)).item<double>());
  EXPECT_EQ(loss(Loss::cross_entropy, p.to(c10::kHalf), at::tensor({0L, 1L})).scalar_type(),
            c10::kFloat);
}

TEST(Loss, RefusesShapesThatDoNotFit) {
  const std::string fields =
      test::error_of([] { loss(Loss::mse, at::zeros({2, 3, 4, 4}), at::zeros({2, 3, 4, 5})); });
  EXPECT_TRUE(test::contains(fields, "the output has shape [2, 3, 4, 4], the target [2, 3, 4, 5]"));
  const std::string relative =
      test::error_of([] { loss(Loss::relative_l2, at::zeros({2, 3}), at::zeros({1, 3})); });
  EXPECT_TRUE(test::contains(relative, "the output has shape [2, 3], the target [1, 3]"));
  const std::string labels =
      test::error_of([] { loss(Loss::cross_entropy, at::zeros({2, 3}), at::zeros({2, 3})); });
  EXPECT_TRUE(test::contains(labels, "one label for each row of scores"));
}

// Its difference becomes the gradient where it lies.
TEST(Loss, RelativeL2GivesItsGradientOnce) {
  const at::Tensor p = loss_noise({2, 3, 4}, "p").requires_grad_(), t = loss_noise({2, 3, 4}, "t");
  const at::Tensor value = loss(Loss::relative_l2, p, t);
  value.backward({}, /*retain_graph=*/true);
  const at::Tensor first = p.grad().clone();
  std::string refusal;
  try {
    value.backward();
  } catch (const c10::Error& error) {
    refusal = error.what_without_backtrace();
  }
  EXPECT_TRUE(test::contains(refusal, "relative_l2 gives its gradient once"));
  EXPECT_TRUE(test::contains(refusal, "compute the loss again for another pass"));
  loss(Loss::relative_l2, p, t).backward();
  EXPECT_TRUE(p.grad().equal(first.mul(2)));
}

}  // namespace
}  // namespace braid::nn
