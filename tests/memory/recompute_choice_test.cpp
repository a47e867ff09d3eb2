// SPDX-License-Identifier: BSD-3-Clause
// Which parts of a model are segments, and where their inputs wait.
#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "memory/recompute_stack.h"

namespace braid::memory {
namespace {

using test_stack::drawn;
using test_stack::same_bits;
using test_stack::Stack;

std::vector<std::string> blocks_of(size_t count) {
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("blocks." + std::to_string(i));
  return names;
}

std::vector<size_t> lengths(const Recompute& again, size_t blocks) {
  std::vector<size_t> all;
  for (size_t i = 0; i < blocks; i += all.back())
    all.push_back(again.together(blocks_of(blocks), i));
  return all;
}

TEST(RecomputeChoice, SegmentsEndWithTheListOfBlocks) {
  using Lengths = std::vector<size_t>;
  EXPECT_EQ(lengths(Recompute({.what = Again::blocks}), 3), (Lengths{1, 1, 1}));
  EXPECT_EQ(lengths(Recompute({.what = Again::blocks, .segment = 3}), 8), (Lengths{3, 3, 2}));
  EXPECT_EQ(lengths(Recompute({.what = Again::blocks, .segment = 99}), 4), (Lengths{4}));
  EXPECT_EQ(lengths(Recompute({.what = Again::matmuls, .segment = 3}), 3), (Lengths{1, 1, 1}));
  EXPECT_EQ(lengths(Recompute({.what = Again::none, .segment = 3}), 2), (Lengths{1, 1}));
}

TEST(RecomputeChoice, ZeroIsTheSquareRootOfTheListGiven) {
  const Recompute again({.what = Again::blocks, .segment = 0});
  EXPECT_EQ(lengths(again, 1).front(), 1u);
  EXPECT_EQ(lengths(again, 2).front(), 1u);
  EXPECT_EQ(lengths(again, 9).front(), 3u);
  EXPECT_EQ(lengths(again, 12).front(), 3u);
  EXPECT_EQ(lengths(again, 13).front(), 4u);  // a stage of a pipeline gives its own blocks
  EXPECT_EQ(lengths(again, 96).front(), 10u);
}

TEST(RecomputeChoice, BlocksWithAChoiceOfTheirOwnStandAlone) {
  const Recompute again({.what = Again::blocks,
                         .segment = 3,
                         .blocks = {{"blocks.1", Again::none}, {"blocks.4", Again::matmuls}}});
  EXPECT_EQ(lengths(again, 8), (std::vector<size_t>{1, 1, 2, 1, 3}));
}

TEST(RecomputeChoice, OnlyNamedBlocksRunTwice) {
  Stack stack(4, 8, true);
  Recompute again({.blocks = {{"blocks.1", Again::blocks}, {"blocks.3", Again::matmuls}}});
  stack.forward(&again, drawn({3, 8}, 0.5)).sum().backward();
  EXPECT_EQ(*stack.calls, (std::vector<int>{1, 2, 1, 2}));
  EXPECT_EQ(again.counts().segments, 2);
  EXPECT_EQ(again.counts().kept, 1);
}

struct Runs {
  int attention = 0, block = 0;
  bool operator==(const Runs&) const = default;
};

// A block with an attention in it.
Runs runs_with(RecomputeOptions options) {
  Recompute again(std::move(options));
  const at::Tensor x = drawn({4}, 0.5).requires_grad_();
  Runs runs;
  const SegmentForward attention = [&](const std::vector<at::Tensor>& in) {
    ++runs.attention;
    return in[0].exp();
  };
  const SegmentForward block = [&](const std::vector<at::Tensor>& in) {
    ++runs.block;
    return again.run(SegmentKind::attention, "blocks.0.attn", {in[0].sin()}, attention).exp();
  };
  again.run(SegmentKind::blocks, "blocks.0", {x}, block).sum().backward();
  return runs;
}

TEST(RecomputeChoice, AttentionIsASegmentIfThatIsTheChoice) {
  EXPECT_EQ(runs_with({.what = Again::none}), (Runs{1, 1}));
  EXPECT_EQ(runs_with({.what = Again::attention}), (Runs{2, 1}));
  EXPECT_EQ(runs_with({.what = Again::blocks}), (Runs{2, 2}));
  EXPECT_EQ(runs_with({.what = Again::matmuls}), (Runs{2, 2}));
  EXPECT_EQ(runs_with({.blocks = {{"blocks.0", Again::attention}}}), (Runs{2, 1}));
  EXPECT_EQ(runs_with({.what = Again::attention, .blocks = {{"blocks.0", Again::none}}}),
            (Runs{1, 1}));
  EXPECT_EQ(runs_with({.blocks = {{"blocks.0.attn", Again::attention}}}), (Runs{2, 1}));
}

TEST(RecomputeChoice, TheConfigSaysIt) {
  MemoryOptions config;
  config.recompute = Again::blocks;
  config.segment = 4;
  config.check_recompute = true;
  const RecomputeOptions given = recompute_options(config);
  EXPECT_EQ(given.what, Again::blocks);
  EXPECT_EQ(given.segment, 4);
  EXPECT_TRUE(given.check);
  config.recompute = Again::budget;
  config.plan = {{"blocks.2", Again::attention}};
  EXPECT_EQ(recompute_options(config).what, Again::none);
  EXPECT_EQ(recompute_options(config).blocks, config.plan);
}

// A stash that remembers what it was given.
class Shelf final : public Stash {
 public:
  std::shared_ptr<Stashed> put(const at::Tensor& value) override {
    values.push_back(value.clone());
    return std::make_shared<Place>(values.back(), taken);
  }
  std::vector<at::Tensor> values;
  int taken = 0;

 private:
  struct Place final : Stashed {
    Place(at::Tensor held, int& count) : value(std::move(held)), taken(count) {}
    at::Tensor take() override { return ++taken, value; }
    at::Tensor value;
    int& taken;
  };
};

TEST(RecomputeChoice, InputsWaitInTheStash) {
  Stack stack(4, 8, true);
  const at::Tensor x = drawn({3, 8}, 0.5).requires_grad_();
  stack.forward(nullptr, x).sum().backward();
  const std::vector<at::Tensor> plain = stack.gradients();
  Shelf shelf;
  Recompute again({.what = Again::blocks, .segment = 2}, &shelf);
  const at::Tensor loss = stack.forward(&again, x).sum();
  ASSERT_EQ(shelf.values.size(), 2u);
  EXPECT_TRUE(shelf.values[0].equal(x.detach()));
  EXPECT_FALSE(shelf.values[0].requires_grad());
  EXPECT_EQ(shelf.taken, 0);
  loss.backward();
  EXPECT_EQ(shelf.taken, 2);
  EXPECT_TRUE(same_bits(stack.gradients(), plain));
}

}  // namespace
}  // namespace braid::memory
