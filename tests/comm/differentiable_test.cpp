// SPDX-License-Identifier: BSD-3-Clause
// Values and gradients of collectives that autograd goes through, against one process. Whole
// numbers in fp64: every sum is exact, so equal means equal.
#include "braid/comm/differentiable.h"

#include <gtest/gtest.h>

#include <ATen/ops/stack.h>

#include "comm/values.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

using comm::Group;

at::Tensor leaf(const at::Tensor& x) { return x.clone().requires_grad_(); }

// Gradient that rank r brings from above; different on each rank.
at::Tensor weights(int rank, at::IntArrayRef sizes) {
  return test::values(rank + 3, sizes, at::kDouble);
}

void pull(const at::Tensor& y, int rank) { y.mul(weights(rank, y.sizes())).sum().backward(); }

at::Tensor sum_over_ranks(int ranks, at::IntArrayRef sizes) {
  at::Tensor sum = at::zeros(sizes, at::kDouble);
  for (int rank = 0; rank < ranks; ++rank) sum.add_(weights(rank, sizes));
  return sum;
}

at::Tensor share_of(const at::Tensor& whole, int64_t dim, const comm::Counts& counts, int rank) {
  return whole.split_with_sizes(counts, dim)[static_cast<size_t>(rank)];
}

class Differentiable : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, Differentiable, testing::Values(1, 2, 3, 4));

TEST_P(Differentiable, CopySumsGradients) {
  test::on_ranks(ranks(), [](Group world) {
    const at::Tensor x = leaf(test::values(9, {3, 4}, at::kDouble));
    const at::Tensor y = comm::copy_to(x, world);
    EXPECT_TRUE(y.equal(x));
    pull(y, world.rank());
    EXPECT_TRUE(x.grad().equal(sum_over_ranks(world.size(), {3, 4})));
  });
}

TEST_P(Differentiable, ReduceSumsValues) {
  test::on_ranks(ranks(), [](Group world) {
    const at::Tensor x = leaf(test::values(world.rank(), {3, 4}, at::kDouble));
    const at::Tensor y = comm::reduce_from(x, world);
    EXPECT_TRUE(
        y.equal(at::stack(test::values_of_ranks(world.size(), {3, 4}, at::kDouble)).sum(0)));
    pull(y, 7);
    EXPECT_TRUE(x.grad().equal(weights(7, {3, 4})));
  });
}

// 10 rows over the ranks in uneven shares, along each dimension.
TEST_P(Differentiable, GatherAndScatterAreMirrors) {
  for (const int64_t dim : {0, 1, -1})
    test::on_ranks(ranks(), [dim](Group world) {
      const at::Tensor whole = test::values(1, {10, 10, 10}, at::kDouble);
      const comm::Counts counts = comm::even_shares(10, world.size());
      const at::Tensor mine = share_of(whole, dim, counts, world.rank());

      const at::Tensor share = leaf(mine);
      const at::Tensor joined = comm::gather_from(share, world, dim, counts);
      EXPECT_TRUE(joined.equal(whole));
      pull(joined, 2);  // the same on all ranks
      EXPECT_TRUE(
          share.grad().equal(share_of(weights(2, whole.sizes()), dim, counts, world.rank())));

      const at::Tensor all = leaf(whole);
      const at::Tensor part = comm::scatter_to(all, world, dim);
      EXPECT_TRUE(part.equal(mine));
      part.mul(share_of(weights(2, whole.sizes()), dim, counts, world.rank())).sum().backward();
      EXPECT_TRUE(all.grad().equal(weights(2, whole.sizes())));
    });
}

TEST_P(Differentiable, AllGatherAndReduceScatterAreMirrors) {
  for (const int64_t dim : {0, 2})
    test::on_ranks(ranks(), [dim](Group world) {
      const std::vector<int64_t> sizes = {10, 2, 10};
      const comm::Counts counts = comm::even_shares(10, world.size());
      const at::Tensor whole = test::values(1, sizes, at::kDouble);
      const at::Tensor share = leaf(share_of(whole, dim, counts, world.rank()));
      const at::Tensor joined = comm::all_gather(share, world, dim, counts);
      EXPECT_TRUE(joined.equal(whole));
      pull(joined, world.rank());
      EXPECT_TRUE(share.grad().equal(
          share_of(sum_over_ranks(world.size(), sizes), dim, counts, world.rank())));

      const at::Tensor mine = leaf(test::values(world.rank(), sizes, at::kDouble));
      const at::Tensor sum = comm::reduce_scatter(mine, world, dim);
      const at::Tensor all =
          at::stack(test::values_of_ranks(world.size(), sizes, at::kDouble)).sum(0);
      EXPECT_TRUE(sum.equal(share_of(all, dim, counts, world.rank())));
      sum.mul(share_of(weights(5, sizes), dim, counts, world.rank())).sum().backward();
      EXPECT_TRUE(mine.grad().equal(weights(5, sizes)));
    });
}

// [tokens / R, heads] -> [tokens, heads / R], as attention over heads wants it: 10 tokens, 6 heads.
TEST_P(Differentiable, AllToAllSwapsTheSharedDimension) {
  test::on_ranks(ranks(), [](Group world) {
    const at::Tensor whole = test::values(1, {10, 6, 3}, at::kDouble);
    const comm::Counts tokens = comm::even_shares(10, world.size());
    const comm::Counts heads = comm::even_shares(6, world.size());
    const at::Tensor mine = leaf(share_of(whole, 0, tokens, world.rank()));
    const at::Tensor turned =
        comm::all_to_all(mine, world, /*split_dim=*/1, /*join_dim=*/0, tokens);
    EXPECT_TRUE(turned.equal(share_of(whole, 1, heads, world.rank())));
    const at::Tensor pulled = weights(4, whole.sizes());
    turned.mul(share_of(pulled, 1, heads, world.rank())).sum().backward();
    EXPECT_TRUE(mine.grad().equal(share_of(pulled, 0, tokens, world.rank())));
  });
}

TEST(Differentiable, SharesAreAsEvenAsItGoes) {
  EXPECT_EQ(comm::even_shares(8, 3), (comm::Counts{3, 3, 2}));
  EXPECT_EQ(comm::even_shares(2, 4), (comm::Counts{1, 1, 0, 0}));
}

TEST(Differentiable, SharesThatAreNotTheWholeAreRefused) {
  test::on_ranks(2, [](Group world) {
    const std::string text =
        test::error_of([&] { comm::scatter_to(at::zeros({5, 2}), world, 0, {2, 2}); });
    EXPECT_TRUE(test::contains(text, "shares [2, 2] of 5 rows for 2 ranks"));
  });
}

}  // namespace
}  // namespace braid
