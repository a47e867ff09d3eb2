// SPDX-License-Identifier: BSD-3-Clause
// Parameters of which a rank holds a box: norms over ranks, and what is saved.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include "braid/optim/ema.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "support/ranks.h"

namespace braid::optim {
namespace {

at::Tensor box_values(at::IntArrayRef sizes, double first) {
  int64_t count = 1;
  for (const int64_t size : sizes) count *= size;
  return at::arange(count, at::kDouble).add(first).sin().view(sizes);
}

Param with_grad(const std::string& name, const at::Tensor& grad, Piece piece = {}) {
  Param param{name, at::ones(grad.sizes(), grad.options()).requires_grad_(), std::move(piece)};
  param.tensor.mutable_grad() = grad.clone();
  return param;
}

const at::Tensor& wide_grad() {
  static const at::Tensor grad = box_values({4, 6}, 1);
  return grad;
}
const at::Tensor& norm_grad() {
  static const at::Tensor grad = box_values({6}, 50);
  return grad;
}

// A matrix by columns over three ranks, and a norm that all of them hold.
std::vector<Param> tensor_rank(int rank) {
  const std::vector<Cut> cuts = {{1, {{2 * rank, 2 * rank + 2}}}};
  std::vector<Param> params = {
      with_grad("w", wide_grad().narrow(1, 2 * rank, 2).contiguous(), {{4, 6}, cuts, 0}),
      with_grad("norm", norm_grad())};
  params[1].repeated = rank > 0;
  return params;
}

TEST(ClipPieces, RepeatedOnesCountOnce) {
  const std::vector<Param> alone = {with_grad("w", wide_grad()), with_grad("norm", norm_grad())};
  const auto wanted = clip_grad_norm(alone, 0.5).item<double>();
  test::on_ranks(3, [&](comm::Group world) {
    const std::vector<Param> params = tensor_rank(world.rank());
    const at::Tensor norm = clip_grad_norm(params, 0.5, world);
    EXPECT_EQ(norm.scalar_type(), c10::kDouble);
    EXPECT_NEAR(norm.item<double>(), wanted, 1e-12 * wanted);
    EXPECT_TRUE(params[0].tensor.grad().allclose(
        alone[0].tensor.grad().narrow(1, 2 * world.rank(), 2), 1e-12, 1e-14));
    EXPECT_TRUE(params[1].tensor.grad().allclose(alone[1].tensor.grad(), 1e-12, 1e-14));
  });
}

// A rank that only repeats what others have scales by the same number as they do.
TEST(ClipPieces, ARankWithoutAnythingOfItsOwn) {
  test::on_ranks(2, [&](comm::Group world) {
    std::vector<Param> params = {with_grad("norm", norm_grad())};
    params[0].repeated = world.rank() > 0;
    const double norm = clip_grad_norm(params, 0.5, world).item<double>();
    EXPECT_NEAR(norm, norm_grad().norm().item<double>(), 1e-14);
    EXPECT_NEAR(params[0].tensor.grad().norm().item<double>(), 0.5, 1e-6);
  });
}

TEST(ClipPieces, InfinityInARepeatedOneIsFound) {
  test::on_ranks(2, [&](comm::Group world) {
    std::vector<Param> params = {with_grad("norm", norm_grad().to(c10::kFloat))};
    params[0].repeated = world.rank() > 0;
    const LossScaler scaler({}, c10::kCPU);
    EXPECT_EQ(scaler.check(params, world).item<float>(), 0);
    if (world.rank() == 1) params[0].tensor.mutable_grad().fill_(1e38).mul_(1e10);
    EXPECT_EQ(scaler.check(params, world).item<float>(), 1);
  });
}

TEST(OptimizerPieces, StatesAreBoxesToo) {
  const Piece box = {{4, 6}, {{1, {{2, 4}}}}, 0};
  const Piece run = {{4, 6}, {{0, {{0, 1}, {3, 4}}}}, 5};  // of a box, as ZeRO has it
  const std::vector<Param> params = {with_grad("w", box_values({4, 2}, 0), box),
                                     with_grad("flat", box_values({7}, 0), run)};
  Optimizer adamw(params, {.weight_decay = 0.5, .decay_matrices_only = true}, c10::kDouble);
  adamw.step(0.1);
  const State state = adamw.state();
  for (const char* kind : {"/exp_avg", "/exp_avg_sq"}) {
    EXPECT_EQ(state.pieces.at(std::string("w") + kind), box);
    EXPECT_EQ(state.pieces.at(std::string("flat") + kind), run);
  }
  EXPECT_EQ(state.tensor("w/exp_avg").sizes(), (std::vector<int64_t>{4, 2}));
  EXPECT_EQ(state.pieces.at("w/step"), Piece{.whole = {1}});
  const Ema ema(params, 0.9);
  EXPECT_EQ(ema.state().pieces.at("w"), box);
  EXPECT_EQ(ema.state().pieces.at("flat"), run);
}

// A flat run of a matrix decays as the matrix does; a run of a bias does not.
TEST(OptimizerPieces, DecayLooksAtTheWhole) {
  const std::vector<Cut> rows = {{0, {{1, 2}}}};
  const std::vector<Param> params = {
      with_grad("matrix", at::full({3}, 0.0, at::kDouble), {{4, 3}, rows, 0}),
      with_grad("bias", at::full({3}, 0.0, at::kDouble), {{9}, {{0, {{3, 6}}}}, 0})};
  Optimizer sgd(params, {.name = Algorithm::sgd, .weight_decay = 0.5, .decay_matrices_only = true},
                c10::kDouble);
  sgd.step(1.0);
  EXPECT_TRUE(params[0].tensor.equal(at::full({3}, 0.5, at::kDouble)));
  EXPECT_TRUE(params[1].tensor.equal(at::ones({3}, at::kDouble)));
}

// Prepared for the boxes of this rank, filled by whoever reads the checkpoint.
TEST(OptimizerPieces, StatesComeBack) {
  const Piece box = {{4, 6}, {{1, {{2, 4}}}}, 0};
  const std::vector<Param> first = {with_grad("w", box_values({4, 2}, 0), box)};
  const std::vector<Param> second = {with_grad("w", box_values({4, 2}, 0), box)};
  Optimizer one(first, {}, c10::kDouble), two(second, {}, c10::kDouble);
  one.step(0.1);
  two.load(one.state());
  second[0].tensor.detach().copy_(first[0].tensor.detach());
  one.step(0.1);
  two.step(0.1);
  EXPECT_TRUE(first[0].tensor.equal(second[0].tensor));
}

}  // namespace
}  // namespace braid::optim
