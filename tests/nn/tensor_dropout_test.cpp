// SPDX-License-Identifier: BSD-3-Clause
// Dropout of a part of a tensor is that part of the dropout of the whole.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "braid/kernels/dropout.h"

namespace braid::kernels::tensor_dropout {  // names of its own, also in a unity build
namespace {

at::Tensor part_of(at::Tensor x, const std::vector<DropWindow>& windows) {
  for (const DropWindow& window : windows) {
    std::vector<at::Tensor> parts;
    for (const Range& range : window.ranges)
      parts.push_back(x.narrow(window.dim, range.begin, range.size()));
    x = at::cat(parts, window.dim);
  }
  return x;
}

const std::vector<std::vector<DropWindow>> windows_of_ranks = {
    {{1, 20, {{5, 10}}}},
    {{2, 30, {{0, 7}}}},
    {{1, 20, {{0, 5}, {15, 20}}}, {2, 30, {{3, 11}}}},
    {{1, 20, {{1, 2}, {4, 9}, {19, 20}}}, {3, 6, {{5, 6}}}},
};

TEST(DropWindow, HoldsItsPartOfTheMask) {
  const at::Tensor whole = at::ones({3, 20, 30, 6});
  for (const auto& windows : windows_of_ranks) {
    Drop drop = {.rate = 0.4, .key = random_key(2, "part"), .first_sample = 7};
    const at::Tensor expected = part_of(dropout(whole, drop), windows);
    drop.windows = windows;
    EXPECT_TRUE(dropout(part_of(whole, windows), drop).equal(expected));
  }
}

TEST(DropWindow, OfLaterSamplesContinuesTheBatch) {
  const at::Tensor whole = at::ones({5, 20, 30, 6});
  Drop drop = {
      .rate = 0.4, .key = random_key(2, "part"), .first_sample = 1, .windows = windows_of_ranks[2]};
  const at::Tensor part = part_of(whole, drop.windows), all = dropout(part, drop);
  drop.first_sample = 3;
  EXPECT_TRUE(dropout(part.narrow(0, 2, 3), drop).equal(all.narrow(0, 2, 3)));
}

auto keep_part_by_ops() {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("braid::keep_part_by_ops", "")
      .typed<at::Tensor(const at::Tensor&, double, int64_t, int64_t, at::IntArrayRef,
                        at::IntArrayRef, const std::optional<at::Tensor>&)>();
}

TEST(DropWindow, ByTensorOperationsIsThatOfTheLoop) {
  const auto by_ops = keep_part_by_ops();
  const RandomKey key = random_key(3, "mask");
  const at::Tensor like = at::ones({3, 7, 8});
  const Drop drop = {.rate = 0.37,
                     .key = key,
                     .first_sample = int64_t{1} << 30,
                     .windows = {{1, 20, {{0, 3}, {9, 11}, {18, 20}}}, {2, 30, {{3, 11}}}}};
  const int64_t first = drop.first_sample * 20 * 30;
  EXPECT_TRUE(keep_mask(like, drop)
                  .equal(by_ops.call(like, 0.37, static_cast<int64_t>(key.bits), first, {3, 20, 30},
                                     {1, 0, 3, 1, 9, 11, 1, 18, 20, 2, 3, 11}, {})));
}

TEST(DropWindow, AStepOnTheDeviceMakesTheKey) {
  const auto by_ops = keep_part_by_ops();
  const RandomKey key = random_key(3, "mask");
  const at::Tensor like = at::ones({3, 7, 8}), step = at::full({}, 41, c10::kLong);
  const Drop known = {.rate = 0.37, .key = key.with(41), .windows = {{2, 30, {{3, 11}}}}};
  Drop late = known;
  late.key = key;
  late.step = step;
  const at::Tensor expected = keep_mask(like, known);
  EXPECT_TRUE(keep_mask(like, late).equal(expected));
  EXPECT_TRUE(
      by_ops.call(like, 0.37, static_cast<int64_t>(key.bits), 0, {3, 7, 30}, {2, 3, 11}, step)
          .equal(expected));
  step.fill_(42);
  EXPECT_FALSE(keep_mask(like, late).equal(expected));
}

}  // namespace
}  // namespace braid::kernels::tensor_dropout
