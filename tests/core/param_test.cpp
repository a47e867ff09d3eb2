// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/param.h"

#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

namespace braid {
namespace {

// The box itself, cut out by torch.
at::Tensor boxed(const at::Tensor& whole, const std::vector<Cut>& cuts) {
  at::Tensor box = whole;
  for (const Cut& cut : cuts) {
    std::vector<at::Tensor> parts;
    for (const Range& range : cut.ranges)
      parts.push_back(box.narrow(cut.dim, range.begin, range.size()));
    box = at::cat(parts, cut.dim);
  }
  return box.contiguous().view({-1});
}

TEST(Piece, RunsAreTheElementsOfTheBox) {
  const std::vector<int64_t> sizes = {4, 6, 5};
  const at::Tensor whole = at::arange(4 * 6 * 5).view(sizes);
  const std::vector<std::vector<Cut>> boxes = {
      {},
      {{0, {{1, 3}}}},
      {{1, {{0, 2}, {4, 5}}}},
      {{2, {{3, 5}}}},
      {{0, {{2, 4}}}, {2, {{0, 1}, {2, 4}}}},
      {{0, {{3, 4}, {0, 1}}}, {1, {{5, 6}}}, {2, {{0, 5}}}},
  };
  for (const auto& cuts : boxes) {
    const at::Tensor box = boxed(whole, cuts);
    for (const int64_t first : {int64_t{0}, box.numel() / 3})
      for (const int64_t count : {box.numel() - first, (box.numel() - first) / 2, int64_t{0}}) {
        const Piece piece = {sizes, cuts, first};
        int64_t at = 0;
        for (const braid::Run& run : runs_of(piece, count)) {
          EXPECT_EQ(run.at, at);
          for (int64_t i = 0; i < run.count; ++i)
            EXPECT_EQ(box[first + run.at + i].item<int64_t>(), run.from + i);
          at += run.count;
        }
        EXPECT_EQ(at, count);
      }
  }
}

// A short run far inside a box of many rows is found without a walk over all of them.
TEST(Piece, ARunDeepInABox) {
  const Piece piece = {{int64_t{1} << 40, 8}, {{1, {{2, 4}}}}, (int64_t{1} << 41) - 3};
  EXPECT_EQ(runs_of(piece, 3), (std::vector<braid::Run>{{((int64_t{1} << 40) - 2) * 8 + 3, 0, 1},
                                                        {((int64_t{1} << 40) - 1) * 8 + 2, 1, 2}}));
}

TEST(Piece, EmptyBoxesHaveNoRuns) {
  EXPECT_TRUE(runs_of({{4, 6}, {{1, {}}}, 0}, 0).empty());
  EXPECT_EQ(box_of({{4, 6}, {{1, {{2, 2}}}}, 0}), (std::vector<int64_t>{4, 0}));
}

TEST(Piece, NeighboursAreOneRun) {
  EXPECT_EQ(runs_of({{8, 3}, {{0, {{2, 5}}}}, 1}, 8), (std::vector<braid::Run>{{7, 0, 8}}));
  EXPECT_EQ(runs_of({{8, 3}, {{1, {{0, 2}, {2, 3}}}}, 0}, 24),
            (std::vector<braid::Run>{{0, 0, 24}}));
  EXPECT_EQ(box_of({{8, 3}, {{0, {{2, 5}, {6, 7}}}}, 0}), (std::vector<int64_t>{4, 3}));
}

}  // namespace
}  // namespace braid
