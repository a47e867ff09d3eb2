// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/scaler.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "braid/optim/optimizer.h"

namespace braid::optim {
namespace {

double value_of(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).flatten().contiguous().const_data_ptr<double>()[0];
}

Param weight_with_grad(const at::Tensor& grad) {
  at::Tensor weight = at::zeros(grad.sizes(), grad.options());
  weight.set_requires_grad(true);
  weight.mutable_grad() = grad;
  return {"w", weight};
}

// The weight after one step of SGD whose gradient is 2^-26, taken through fp16 with a loss scale.
double moved_by(double scale) {
  at::Tensor weight = at::zeros({1}, at::kHalf).set_requires_grad(true);
  const Param param = {"w", weight};
  LossScaler scaler({.initial = scale}, c10::kCPU);
  const at::Tensor loss = weight.to(at::kFloat).mul(std::ldexp(1.0, -26)).sum();
  loss.mul(scaler.scale()).backward();
  Optimizer sgd({param}, {.name = Algorithm::sgd});
  sgd.step(1.0, scaler.check({param}), scaler.inverse());
  return value_of(sgd.state().tensor("w/master"));
}

TEST(LossScaler, SavesGradientsBelowTheRangeOfFp16) {
  EXPECT_EQ(moved_by(1), 0.0);
  EXPECT_EQ(moved_by(1024), -std::ldexp(1.0, -26));
}

TEST(LossScaler, FindsInfinityAndNanAndLeavesGradientsAlone) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const auto dtype : {c10::kFloat, c10::kHalf, c10::kBFloat16, c10::kDouble}) {
    const Param p = weight_with_grad(at::full({3}, 0.1, dtype));
    const at::Tensor before = p.tensor.grad().clone();
    const LossScaler scaler({}, c10::kCPU);
    EXPECT_EQ(value_of(scaler.check({p})), 0.0);
    EXPECT_TRUE(p.tensor.grad().equal(before));
    for (const double bad : {inf, -inf, std::nan("")}) {
      p.tensor.grad().select(0, 1).fill_(bad);
      EXPECT_EQ(value_of(scaler.check({p})), 1.0) << bad;
      p.tensor.grad().copy_(before);
    }
  }
  EXPECT_EQ(value_of(LossScaler({}, c10::kCPU).check({})), 0.0);
}

TEST(LossScaler, GrowsAfterCleanStepsAndBacksOffAfterOverflow) {
  LossScaler scaler({.initial = 65536, .interval = 3}, c10::kCPU);
  const at::Tensor clean = at::zeros({}), bad = at::ones({});
  scaler.update(clean);
  scaler.update(clean);
  EXPECT_EQ(value_of(scaler.scale()), 65536);
  scaler.update(clean);
  EXPECT_EQ(value_of(scaler.scale()), 131072);
  EXPECT_EQ(value_of(scaler.inverse()), 1.0 / 131072);
  scaler.update(clean);
  scaler.update(bad);  // the count of clean steps starts anew
  EXPECT_EQ(value_of(scaler.scale()), 65536);
  scaler.update(clean);
  scaler.update(clean);
  EXPECT_EQ(value_of(scaler.scale()), 65536);
  scaler.update(clean);
  EXPECT_EQ(value_of(scaler.scale()), 131072);
}

TEST(LossScaler, StateComesBackBitExactly) {
  const ScalerOptions options{.initial = 1000, .growth = 1.7, .backoff = 0.3, .interval = 4};
  const at::Tensor clean = at::zeros({}), bad = at::ones({});
  LossScaler whole(options, c10::kCPU), first(options, c10::kCPU), second(options, c10::kCPU);
  for (int i = 0; i < 40; ++i) {
    const at::Tensor& found = i % 13 == 12 ? bad : clean;
    whole.update(found);
    if (i == 18) second.load(first.state());
    (i < 18 ? first : second).update(found);
    EXPECT_TRUE(whole.scale().equal(i < 18 ? first.scale() : second.scale())) << i;
  }
}

}  // namespace
}  // namespace braid::optim
