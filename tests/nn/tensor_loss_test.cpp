// SPDX-License-Identifier: BSD-3-Clause
// Losses of what is spread over ranks: values are the same on all of them, and gradients of a
// rank's output are those of one process.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "braid/comm/differentiable.h"
#include "braid/core/rng.h"
#include "braid/nn/loss.h"
#include "nn/tensor_spread.h"
#include "support/ranks.h"

namespace braid::nn::tensor_loss {  // names of its own, also in a unity build
namespace {

constexpr int64_t loss_batch = 3, loss_tokens = 7, loss_entries = 11;

at::Tensor drawn(std::string_view name, at::IntArrayRef sizes) {
  at::Tensor x = at::empty(sizes, at::kDouble);
  fill_normal(x, random_key(4, name));
  return x;
}

at::Tensor labels() {
  at::Tensor drawn_labels = drawn("labels", {loss_batch, loss_tokens})
                                .mul(100)
                                .abs()
                                .to(at::kLong)
                                .remainder(loss_entries);
  drawn_labels[0].narrow(0, 0, 6).fill_(ignored_target);  // some ranks have more that count
  return drawn_labels;
}

at::Tensor share_of(const at::Tensor& x, int64_t dim, const comm::Group& group) {
  const auto counts = comm::even_shares(x.size(dim), group.size());
  return x.split_with_sizes(counts, dim)[static_cast<size_t>(group.rank())].clone();
}

struct Expected {
  at::Tensor loss, by_sample, grad;
};

Expected on_one(Loss kind, const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor x = output.clone().requires_grad_();
  const at::Tensor value = loss(kind, x, target);
  value.backward();
  return {value.detach(), loss_by_sample(kind, output, target), x.grad()};
}

void expect_same(Loss kind, const at::Tensor& output, const at::Tensor& target,
                 const LossShare& share, const Expected& expected, const at::Tensor& grad) {
  const at::Tensor x = output.clone().requires_grad_();
  const at::Tensor value = loss(kind, x, target, share);
  value.backward();
  EXPECT_LE(test::Together::apart(value.detach(), expected.loss), 1e-14);
  EXPECT_LE(test::Together::apart(loss_by_sample(kind, output, target, share), expected.by_sample),
            1e-14);
  EXPECT_LE(test::Together::apart(x.grad(), grad), 1e-13);
}

TEST(SplitLoss, OfTokensIsThatOfOneProcess) {
  for (const Loss kind : {Loss::relative_l2, Loss::l1, Loss::mse, Loss::cross_entropy}) {
    const at::Tensor output = drawn("output", {loss_batch, loss_tokens, loss_entries});
    const at::Tensor target = kind == Loss::cross_entropy
                                  ? labels()
                                  : drawn("target", {loss_batch, loss_tokens, loss_entries});
    const Expected expected = on_one(kind, output, target);
    for (const int ranks : {2, 3})
      test::on_ranks(ranks, [&](comm::Group world) {
        expect_same(kind, share_of(output, 1, world), share_of(target, 1, world),
                    {.context = world}, expected, share_of(expected.grad, 1, world));
      });
  }
}

TEST(SplitLoss, OfScoresIsThatOfOneProcess) {
  const at::Tensor output = drawn("output", {loss_batch, loss_tokens, loss_entries}).mul(30);
  const Expected expected = on_one(Loss::cross_entropy, output, labels());
  for (const int ranks : {2, 3, 4})
    test::on_ranks(ranks, [&](comm::Group world) {
      expect_same(Loss::cross_entropy, share_of(output, 2, world), labels(),
                  {.vocabulary = world, .scores = loss_entries}, expected,
                  share_of(expected.grad, 2, world));
    });
}

TEST(SplitLoss, OfTokensAndScoresIsThatOfOneProcess) {
  const at::Tensor output = drawn("output", {loss_batch, loss_tokens, loss_entries});
  const Expected expected = on_one(Loss::cross_entropy, output, labels());
  test::on_ranks(4, [&](comm::Group world) {
    const int row = world.rank() / 2, column = world.rank() % 2;
    const comm::Group vocabulary = world.split({2 * row, 2 * row + 1}, "v" + std::to_string(row));
    const comm::Group context = world.split({column, 2 + column}, "c" + std::to_string(column));
    const auto mine = [&](const at::Tensor& x) {
      return share_of(share_of(x, 1, context), 2, vocabulary);
    };
    expect_same(Loss::cross_entropy, mine(output), share_of(labels(), 1, context),
                {.context = context, .vocabulary = vocabulary, .scores = loss_entries}, expected,
                mine(expected.grad));
  });
}

TEST(SplitLoss, APerfectOutputHasAGradientOfZero) {
  const at::Tensor target = drawn("target", {loss_batch, loss_tokens, loss_entries});
  test::on_ranks(2, [&](comm::Group world) {
    const at::Tensor mine = share_of(target, 1, world), x = mine.clone().requires_grad_();
    loss(Loss::relative_l2, x, mine, {.context = world}).backward();
    EXPECT_TRUE(x.grad().equal(at::zeros_like(x)));
  });
}

}  // namespace
}  // namespace braid::nn::tensor_loss
