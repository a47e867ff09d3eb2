// SPDX-License-Identifier: BSD-3-Clause
// Gradients of fewer bits than what is updated are cast tile by tile, with the bits of one piece.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>

#include <string>
#include <vector>

#include "braid/optim/optimizer.h"

namespace braid::optim {
namespace {

constexpr int64_t tile = int64_t{16} << 20;

// Numbers of every size, without many repeats.
at::Tensor spread(int64_t elements, double slope) {
  return at::arange(elements, c10::kFloat).mul_(slope).remainder_(2.0).sub_(1.0);
}

TEST(OptimizerTiles, GiveTheBitsOfOnePiece) {
  const int64_t elements = tile + 1003;  // two tiles, the second with a tail
  const at::Tensor whole = spread(elements, 0.37), tiled = whole.clone();
  const at::Tensor grad = spread(elements, 0.0731).to(c10::kBFloat16);
  const at::Tensor few = spread(7, 0.3), few_tiled = few.clone();
  Optimizer one({{"few", few}, {"weight", whole}}, {.lr = 1e-2, .weight_decay = 0.1});
  Optimizer many({{"few", few_tiled}, {"weight", tiled}}, {.lr = 1e-2, .weight_decay = 0.1});
  whole.mutable_grad() = grad.to(c10::kFloat);
  tiled.mutable_grad() = grad;
  few.mutable_grad() = grad.narrow(0, 0, 7).to(c10::kFloat);
  few_tiled.mutable_grad() = grad.narrow(0, 0, 7);
  std::vector<std::string> told;
  for (int step = 0; step < 2; ++step) {
    one.step(1e-2);
    many.step(1e-2, {}, {}, [&](const Param& param) { told.push_back(param.name); });
  }
  EXPECT_TRUE(tiled.equal(whole));
  EXPECT_TRUE(few_tiled.equal(few));
  EXPECT_TRUE(many.state().tensor("weight/step").equal(one.state().tensor("weight/step")));
  EXPECT_EQ(told, (std::vector<std::string>{"few", "weight", "few", "weight"}));
}

}  // namespace
}  // namespace braid::optim
