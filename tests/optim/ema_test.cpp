// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/ema.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include "support/expect.h"

namespace braid::optim {
namespace {

double value_at(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).flatten().contiguous().const_data_ptr<double>()[0];
}

TEST(Ema, FollowsTheWeights) {
  const Param p = {"w", at::zeros({2}, at::kDouble).set_requires_grad(true)};
  Ema ema({p}, 0.9);
  p.tensor.detach().fill_(1);
  for (int i = 0; i < 3; ++i) ema.update();
  EXPECT_NEAR(value_at(ema.state().tensor("w")), 1 - 0.9 * 0.9 * 0.9, 1e-15);
  EXPECT_EQ(value_at(p.tensor), 1.0);
}

TEST(Ema, SwapsBothWaysWithoutLosingABit) {
  const Param p = {"w", at::ones({2}, at::kBFloat16).set_requires_grad(true)};
  Ema ema({p}, 0.999);
  p.tensor.detach().fill_(2);
  ema.update();  // 1.001: bf16 would have rounded it to 1
  const double average = value_at(ema.state().tensor("w"));
  EXPECT_NEAR(average, 1.001, 1e-6);
  ema.swap();
  EXPECT_EQ(value_at(p.tensor), 1.0);
  EXPECT_TRUE(test::contains(test::error_of([&] { ema.update(); }), "swap() again"));
  ema.swap();
  EXPECT_EQ(value_at(p.tensor), 2.0);
  EXPECT_EQ(value_at(ema.state().tensor("w")), average);
}

TEST(Ema, StateComesBack) {
  const Param p = {"w", at::ones({2})};
  Ema first({p}, 0.5), second({p}, 0.5);
  p.tensor.fill_(3);
  first.update();
  second.load(first.state());
  EXPECT_EQ(value_at(second.state().tensor("w")), 2.0);
  Ema other({{"w", at::ones({3})}}, 0.5);
  EXPECT_TRUE(test::contains(test::error_of([&] { other.load(first.state()); }),
                             "average of w has 2 values, the model 3"));
}

TEST(Ema, RefusesADecayOfOne) {
  EXPECT_TRUE(test::contains(test::error_of([] { Ema({}, 1.0); }), "EMA decay of 1"));
}

}  // namespace
}  // namespace braid::optim
