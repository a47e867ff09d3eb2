// SPDX-License-Identifier: BSD-3-Clause
#include "braid/optim/optimizer.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

#include "support/expect.h"

namespace braid::optim {
namespace {

using test::contains;
using test::error_of;

Param param_of(const std::string& name, at::Tensor value, const at::Tensor& grad) {
  value.set_requires_grad(true);
  value.mutable_grad() = grad;
  return {name, value};
}

double first_of(const at::Tensor& tensor) {
  return tensor.detach().to(at::kDouble).flatten().contiguous().const_data_ptr<double>()[0];
}

at::Tensor scalar(double value) { return at::full({}, value, at::kFloat); }

TEST(Optimizer, DropsAnUpdateWithInfinityAndDoesNotCountIt) {
  for (const Algorithm name : {Algorithm::sgd, Algorithm::adam, Algorithm::adamw}) {
    const Param p = param_of("w", at::ones({4}), at::ones({4}));
    Optimizer optimizer({p}, {.name = name, .weight_decay = 0.1, .momentum = 0.9});
    optimizer.step(0.1, scalar(0));
    const at::Tensor before = p.tensor.detach().clone();
    State saved;
    for (const auto& [entry, tensor] : optimizer.state().tensors)
      saved.tensors[entry] = tensor.clone();
    p.tensor.mutable_grad().fill_(std::numeric_limits<double>::infinity());
    optimizer.step(0.1, scalar(1));
    EXPECT_TRUE(p.tensor.detach().equal(before));
    for (const auto& [entry, tensor] : optimizer.state().tensors)
      EXPECT_TRUE(tensor.equal(saved.tensor(entry))) << entry;
  }
}

TEST(Optimizer, TakesTheLearningRateFromTheDevice) {
  for (const Algorithm name : {Algorithm::sgd, Algorithm::adam, Algorithm::adamw})
    for (const auto dtype : {c10::kFloat, c10::kDouble}) {
      const auto updated = [&](const auto& rate_at) {
        const Param p = param_of("w", at::ones({5}, dtype), at::arange(5, dtype));
        Optimizer optimizer({p}, {.name = name, .weight_decay = 0.1, .momentum = 0.9}, dtype);
        for (int step = 0; step < 3; ++step) optimizer.step(rate_at(step));
        return p.tensor.detach();
      };
      const at::Tensor rate = at::zeros({}, c10::kDouble);
      const auto number = [](int step) { return LearningRate(0.1 / (1 + step)); };
      const auto scalar = [&](int step) {
        rate.fill_(0.1 / (1 + step));
        return LearningRate(rate);
      };
      EXPECT_TRUE(updated(number).equal(updated(scalar)));
    }
}

TEST(Optimizer, MultipliesGradientsByTheInverseScale) {
  for (const auto dtype : {c10::kFloat, c10::kDouble}) {
    const Param p = param_of("w", at::zeros({3}, dtype), at::full({3}, 6.0, dtype));
    Optimizer sgd({p}, {.name = Algorithm::sgd}, dtype);
    sgd.step(1.0, scalar(0), scalar(1.0 / 4));
    EXPECT_EQ(first_of(p.tensor), -1.5);
  }
}

TEST(Optimizer, DecaysMatricesOnlyIfAsked) {
  const Param matrix = param_of("m", at::ones({2, 2}), at::zeros({2, 2}));
  const Param vector = param_of("v", at::ones({2}), at::zeros({2}));
  Optimizer adamw({matrix, vector}, {.weight_decay = 0.5, .decay_matrices_only = true});
  adamw.step(0.1);
  EXPECT_NEAR(first_of(matrix.tensor), 0.95, 1e-7);
  EXPECT_EQ(first_of(vector.tensor), 1.0);
}

TEST(Optimizer, UpdatesTheRightElementsWhenAGradientHasAnotherLayout) {
  const Param p = param_of("w", at::zeros({3, 2}).t(), at::arange(6, at::kFloat).view({2, 3}));
  Optimizer sgd({p}, {.name = Algorithm::sgd});
  sgd.step(1.0);
  EXPECT_TRUE(p.tensor.detach().neg().equal(at::arange(6, at::kFloat).view({2, 3})));
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  const Param used = param_of("used", at::ones({2}), at::ones({2}));
  const Param unused = param_of("unused", at::ones({2}), {});
  Optimizer adamw({used, unused}, {.weight_decay = 0.5});
  adamw.step();
  EXPECT_EQ(first_of(unused.tensor), 1.0);
  EXPECT_FALSE(adamw.state().has("unused/exp_avg"));
  EXPECT_EQ(first_of(adamw.state().tensor("used/step")), 1.0);
  adamw.zero_grad();
  EXPECT_FALSE(used.tensor.grad().defined());
}

// A weight of 1 and 8192 updates of 2^-13: in fp16 each is rounded away, an fp32 master ends at
// exactly 0.
TEST(Optimizer, MasterCopiesKeepSmallUpdates) {
  const double small = std::ldexp(1.0, -13);
  const auto after = [&](c10::ScalarType master) {
    const Param p = param_of("w", at::ones({1}, at::kHalf), at::full({1}, small, at::kHalf));
    Optimizer sgd({p}, {.name = Algorithm::sgd}, master);
    for (int i = 0; i < 8192; ++i) sgd.step(1.0);
    return first_of(p.tensor);
  };
  EXPECT_EQ(after(c10::kHalf), 1.0);
  EXPECT_EQ(after(c10::kFloat), 0.0);
}

TEST(Optimizer, NeverNarrowsAWiderParameter) {
  const Param p = param_of("w", at::ones({1}, at::kDouble), at::full({1}, 1e-12, at::kDouble));
  Optimizer sgd({p}, {.name = Algorithm::sgd});  // master fp32
  sgd.step(1.0);
  EXPECT_EQ(first_of(p.tensor), 1.0 - 1e-12);
  EXPECT_TRUE(sgd.state().tensors.empty());
}

TEST(Optimizer, RefusesAStateOfAnotherModelOrRule) {
  const auto make = [](const std::string& name, int64_t size, Algorithm algorithm) {
    const Param p = param_of(name, at::ones({size}), at::ones({size}));
    auto optimizer =
        std::make_unique<Optimizer>(std::vector{p}, OptimizerOptions{.name = algorithm});
    optimizer->step();
    return optimizer;
  };
  const auto adamw = make("w", 3, Algorithm::adamw);
  const State state = adamw->state();
  EXPECT_TRUE(contains(error_of([&] { make("w", 3, Algorithm::adam)->load(state); }),
                       "algorithm = adamw\"\n  why: this run uses adam"));
  EXPECT_TRUE(contains(error_of([&] { make("other", 3, Algorithm::adamw)->load(state); }),
                       "has \"w/exp_avg\""));
  EXPECT_TRUE(contains(error_of([&] { make("w", 4, Algorithm::adamw)->load(state); }),
                       "it holds 3 values of fp32, this run needs 4"));
}

TEST(Optimizer, RefusesImpossibleOptions) {
  const Param p = param_of("w", at::ones({1}), at::ones({1}));
  EXPECT_TRUE(contains(error_of([&] { Optimizer({p}, {.betas = {0.9}}); }), "betas = [0.9]"));
  EXPECT_TRUE(contains(
      error_of([&] { Optimizer({p}, {.name = Algorithm::sgd, .nesterov = true}); }), "nesterov"));
}

TEST(ClipGradNorm, ScalesToTheGivenNormAndReturnsTheOneBefore) {
  const Param a = param_of("a", at::zeros({2}), at::full({2}, 3.0));
  const Param b = param_of("b", at::zeros({2}, at::kHalf), at::full({2}, 4.0, at::kHalf));
  const std::vector<Param> params = {a, b, param_of("none", at::zeros({2}), {})};
  const double norm = std::sqrt(2 * 9.0 + 2 * 16.0);
  EXPECT_NEAR(first_of(clip_grad_norm(params, 0)), norm, 1e-6);
  EXPECT_EQ(first_of(a.tensor.grad()), 3.0);  // only measured
  EXPECT_NEAR(first_of(clip_grad_norm(params, norm / 2)), norm, 1e-6);
  EXPECT_NEAR(first_of(a.tensor.grad()), 1.5, 1e-6);
  EXPECT_NEAR(first_of(b.tensor.grad()), 2.0, 2e-3);
  clip_grad_norm(params, 100);  // below the limit: untouched
  EXPECT_NEAR(first_of(a.tensor.grad()), 1.5, 1e-6);
  EXPECT_EQ(first_of(clip_grad_norm({}, 1)), 0.0);
}

TEST(ClipGradNorm, DoesNotOverflowInFp16) {
  const Param p = param_of("w", at::zeros({100}, at::kHalf), at::full({100}, 60000.0, at::kHalf));
  EXPECT_NEAR(first_of(clip_grad_norm({p}, 1)), 599'000.0, 2000);  // fp16 ends at 65504
}

TEST(ScaleGrads, MultipliesEachDtype) {
  const Param a = param_of("a", at::zeros({2}, at::kDouble), at::full({2}, 3.0, at::kDouble));
  const Param b = param_of("b", at::zeros({2}, at::kBFloat16), at::full({2}, 4.0, at::kBFloat16));
  scale_grads({a, b}, scalar(0.5));
  EXPECT_EQ(first_of(a.tensor.grad()), 1.5);
  EXPECT_EQ(first_of(b.tensor.grad()), 2.0);
}

}  // namespace
}  // namespace braid::optim
