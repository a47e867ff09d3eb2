// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/cross_entropy.h"

#include <gtest/gtest.h>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

constexpr int64_t skipped = -100;

struct EntropyCase {
  at::Tensor scores, target, grad;
};

EntropyCase entropy_case(int64_t rows, int64_t classes, c10::ScalarType dtype) {
  EntropyCase one;
  one.scores = test::drawn({rows, classes}, 1, "scores").mul_(3).to(dtype);
  one.target = test::drawn({rows}, 2, "target").mul_(1000).to(at::kLong).remainder(classes);
  if (rows > 2) one.target[2] = skipped;
  one.grad = test::drawn({rows}, 3, "grad").to(dtype == at::kDouble ? at::kDouble : at::kFloat);
  return one;
}

struct EntropyResult {
  at::Tensor each, grad;
};

template <class Fn>
EntropyResult result_of(const EntropyCase& one, const Fn& fn) {
  const at::Tensor scores = one.scores.clone().requires_grad_();
  const at::Tensor each = fn(scores, one.target);
  return {each.detach(), torch::autograd::grad({each}, {scores}, {one.grad})[0]};
}

double off(const at::Tensor& a, const at::Tensor& b) {
  return a.to(at::kDouble).sub(b.to(at::kDouble)).norm().item<double>() /
         b.to(at::kDouble).norm().item<double>();
}

const auto ours = [](const at::Tensor& scores, const at::Tensor& target) {
  return cross_entropy(scores, target, skipped);
};
const auto torchs = [](const at::Tensor& scores, const at::Tensor& target) {
  const auto wide = scores.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cross_entropy_loss(scores.to(wide), target, {}, at::Reduction::None, skipped);
};

TEST(CrossEntropy, IsThatOfTorch) {
  const std::vector<std::pair<c10::ScalarType, double>> dtypes = {
      {at::kDouble, 1e-14}, {at::kFloat, 1e-6}, {at::kBFloat16, 1e-5}};
  for (const auto& [dtype, tolerance] : dtypes)
    for (const auto& [rows, classes] :
         std::vector<std::pair<int64_t, int64_t>>{{1, 2}, {7, 5}, {70, 3001}, {3, 70'001}}) {
      const EntropyCase one = entropy_case(rows, classes, dtype);
      const EntropyResult got = result_of(one, ours), wanted = result_of(one, torchs);
      EXPECT_LE(off(got.each, wanted.each), tolerance) << rows << " x " << classes;
      EXPECT_LE(off(got.grad, wanted.grad), tolerance) << rows << " x " << classes;
      EXPECT_EQ(got.grad.scalar_type(), dtype);
    }
}

// Scores that exp() cannot hold, and a row that does not count.
TEST(CrossEntropy, HoldsLargeScoresAndSkippedRows) {
  const at::Tensor scores = at::tensor({1e4, -1e4, 0.0, 3.0, 3.0, 3.0}, at::kDouble).view({2, 3});
  const at::Tensor target = at::tensor({int64_t{1}, skipped}, at::kLong);
  const EntropyResult got = result_of({scores, target, at::ones({2}, at::kDouble)}, ours);
  EXPECT_EQ(got.each[0].item<double>(), 2e4);
  EXPECT_EQ(got.each[1].item<double>(), 0);
  EXPECT_TRUE(got.grad[1].eq(0).all().item<bool>());
  EXPECT_TRUE(got.grad[0].equal(at::tensor({1.0, -1.0, 0.0}, at::kDouble)));
}

TEST(CrossEntropy, PartsOfTheClassesGiveTheWhole) {
  const EntropyCase one = entropy_case(9, 31, at::kDouble);
  const at::Tensor all = row_logsumexp(one.scores);
  at::Tensor picked = at::zeros({9}, at::kDouble);
  std::vector<at::Tensor> sums, grads;
  for (const auto& [first, count] : std::vector<std::pair<int64_t, int64_t>>{{0, 12}, {12, 19}}) {
    const at::Tensor part = one.scores.narrow(1, first, count);
    sums.push_back(row_logsumexp(part));
    picked.add_(target_scores(part, one.target, first));
    grads.push_back(cross_entropy_grad(one.grad, part, all, one.target, first));
  }
  EXPECT_LE(off(at::logsumexp(at::stack(sums), {0}), all), 1e-15);
  EXPECT_TRUE(picked.equal(target_scores(one.scores, one.target, 0)));
  EXPECT_LE(off(at::cat(grads, 1), cross_entropy_grad(one.grad, one.scores, all, one.target, 0)),
            1e-15);
}

}  // namespace
}  // namespace braid::kernels
