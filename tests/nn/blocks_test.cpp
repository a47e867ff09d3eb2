// SPDX-License-Identifier: BSD-3-Clause
// run_blocks: a branch that a block leaves open is added by the next one; whoever stands around
// blocks sees closed sums; values and gradients are the same.
#include "braid/nn/blocks.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/core/rng.h"
#include "braid/kernels/norm.h"

namespace braid::nn {
namespace {

at::Tensor stream_values(at::IntArrayRef shape, std::string_view name) {
  at::Tensor values = at::empty(shape, c10::kDouble);
  fill_normal(values, random_key(5, name));
  return values;
}

struct BlocksSeen final : BlockRunner {
  at::Tensor run(const std::string& block, const at::Tensor& input,
                 const BlockForward& forward) override {
    names.push_back(block);
    return forward(input);
  }
  std::vector<std::string> names;
};

// Blocks x + tanh(norm(x)), which leave the addition to the next one, or do it themselves.
std::vector<NamedBlock> residual_blocks(const std::vector<at::Tensor>& weights, bool open) {
  std::vector<NamedBlock> blocks;
  for (const at::Tensor& weight : weights) {
    const auto plain = [weight](const at::Tensor& x) {
      return x.add(kernels::norm_rows(x, {weight}).tanh());
    };
    const auto left_open = [weight](Stream in) -> Stream {
      const auto [sum, y] = kernels::add_norm_rows(in.sum, in.branch, {weight});
      return {sum, y.tanh()};
    };
    const std::string name = "blocks." + std::to_string(blocks.size());
    if (open)
      blocks.push_back({name, left_open});
    else
      blocks.push_back({name, closing(plain)});
  }
  return blocks;
}

// The output, then the gradients of input and weights.
std::vector<at::Tensor> through_blocks(bool open, BlockRunner* runner) {
  std::vector<at::Tensor> leaves;
  for (const char* name : {"x", "a", "b", "c"})
    leaves.push_back(
        stream_values(name[0] == 'x' ? std::vector<int64_t>{4, 8} : std::vector<int64_t>{8}, name)
            .requires_grad_());
  Pass pass;
  pass.blocks = runner;
  const std::vector<at::Tensor> weights(leaves.begin() + 1, leaves.end());
  const at::Tensor y = run_blocks(pass, residual_blocks(weights, open), leaves[0]);
  std::vector<at::Tensor> all = torch::autograd::grad({y}, leaves, {stream_values({4, 8}, "g")});
  all.insert(all.begin(), y.detach());
  return all;
}

TEST(RunBlocks, LeavesAdditionsToTheNextBlock) {
  const auto closed = through_blocks(false, nullptr), open = through_blocks(true, nullptr);
  for (size_t i = 0; i < closed.size(); ++i)
    EXPECT_LT(open[i].sub(closed[i]).abs().max().item<double>(), 1e-13) << i;
}

TEST(RunBlocks, ClosesBeforeWhoeverStandsAroundABlock) {
  BlocksSeen seen;
  const auto closed = through_blocks(false, nullptr), around = through_blocks(true, &seen);
  EXPECT_EQ(seen.names, (std::vector<std::string>{"blocks.0", "blocks.1", "blocks.2"}));
  for (size_t i = 0; i < closed.size(); ++i)
    EXPECT_LT(around[i].sub(closed[i]).abs().max().item<double>(), 1e-13) << i;
}

TEST(RunBlocks, OfNoneIsTheInput) {
  const at::Tensor x = stream_values({2, 3}, "x");
  EXPECT_TRUE(run_blocks({}, {}, x).is_same(x));
}

}  // namespace
}  // namespace braid::nn
