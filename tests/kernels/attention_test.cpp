// SPDX-License-Identifier: BSD-3-Clause
// braid::attention and its gradients (kernels/attention_op.h) on the CPU, in fp64, against
// attention written out; where the gradients lie.
#include "kernels/attention_op.h"

#include <cmath>
#include <limits>

#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

using Many = std::vector<at::Tensor>;

struct AttendCase {
  int64_t heads = 4, shared = 4, tokens = 9, width = 8;
  bool causal = false, in_one = false;
  double scale = 0.3;

  int64_t all_heads() const { return heads + 2 * shared; }
};

// Leaves by token [2, tokens, heads, width]: one tensor, or one each for q, k and v.
Many leaves_of(const AttendCase& one) {
  const at::Tensor whole = test::drawn({2, one.tokens, one.all_heads(), one.width}, 5, "qkv");
  if (one.in_one) return {whole.clone().requires_grad_()};
  Many leaves;
  for (const at::Tensor& part : whole.split_with_sizes({one.heads, one.shared, one.shared}, 2))
    leaves.push_back(part.contiguous().requires_grad_());
  return leaves;
}

Many heads_of(const AttendCase& one, const Many& leaves) {
  Many parts = leaves;
  if (one.in_one) parts = leaves[0].split_with_sizes({one.heads, one.shared, one.shared}, 2);
  for (at::Tensor& part : parts) part = part.transpose(1, 2);
  return parts;
}

at::Tensor scores_of(const AttendCase& one, const Many& qkv) {
  const at::Tensor k = qkv[1].repeat_interleave(one.heads / one.shared, 1);
  const at::Tensor scores = at::matmul(qkv[0], k.transpose(2, 3)).mul(one.scale);
  if (!one.causal) return scores;
  const at::Tensor later = at::ones({one.tokens, one.tokens}, at::kBool).triu(1);
  return scores.masked_fill(later, -std::numeric_limits<double>::infinity());
}

at::Tensor attended(const AttendCase& one, const Many& qkv) {
  const at::Tensor v = qkv[2].repeat_interleave(one.heads / one.shared, 1);
  return at::matmul(at::softmax(scores_of(one, qkv), -1), v);
}

void expect_as_written_out(const AttendCase& one) {
  const Many leaves = leaves_of(one), qkv = heads_of(one, leaves);
  const at::Tensor ours = attend(qkv[0], qkv[1], qkv[2], one.causal, one.scale),
                   theirs = attended(one, qkv);
  EXPECT_LT(ours.sub(theirs).abs().max().item<double>(), 1e-12);
  EXPECT_EQ(ours.strides(), at::empty_like(qkv[0]).strides());
  const at::Tensor grad = test::drawn({2, one.tokens, one.heads, one.width}, 6, "grad");
  const Many found = torch::autograd::grad({ours}, leaves, {grad.transpose(1, 2)}),
             exact = torch::autograd::grad({theirs}, leaves, {grad.transpose(1, 2)});
  for (size_t i = 0; i < leaves.size(); ++i)
    EXPECT_LT(found[i].sub(exact[i]).abs().max().item<double>(), 1e-12) << i;
}

TEST(Attend, ValuesAndGradients) {
  for (const bool causal : {false, true})
    for (const bool in_one : {false, true})
      for (const int64_t tokens : {1, 9, 65})
        for (const int64_t shared : {4, 2, 1}) {
          SCOPED_TRACE(testing::Message() << causal << in_one << " " << tokens << " " << shared);
          expect_as_written_out(
              {.shared = shared, .tokens = tokens, .causal = causal, .in_one = in_one});
        }
}

using Called = std::tuple<at::Tensor, at::Tensor>;
Called called(const AttendCase& one, const Many& qkv) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("braid::attention", "")
      .typed<Called(const at::Tensor&, const at::Tensor&, const at::Tensor&, bool, double)>()
      .call(qkv[0].detach(), qkv[1].detach(), qkv[2].detach(), one.causal, one.scale);
}

TEST(Attend, GivesTheLogOfTheSums) {
  for (const bool causal : {false, true}) {
    const AttendCase one = {.shared = 2, .causal = causal};
    const Many qkv = heads_of(one, leaves_of(one));
    const auto [out, sums] = called(one, qkv);
    const at::Tensor exact = scores_of(one, qkv).logsumexp({-1}, /*keepdim=*/true);
    EXPECT_EQ(sums.sizes(), exact.sizes());
    EXPECT_LT(sums.sub(exact).abs().max().item<double>(), 1e-12);
  }
}

TEST(Attend, GradientsLieAsTheirTensorsDo) {
  for (const int64_t shared : {4, 2}) {
    AttendCase one = {.shared = shared, .in_one = true};
    const Many qkv = heads_of(one, leaves_of(one));
    EXPECT_TRUE(lie_in_one(qkv[0], qkv[1], qkv[2]));
    const auto [to_q, to_k, to_v] = fresh_gradients(qkv[0], qkv[1], qkv[2]);
    EXPECT_TRUE(lie_in_one(to_q, to_k, to_v));
    EXPECT_TRUE(to_v.is_alias_of(to_q));
    EXPECT_EQ(to_k.sizes(), qkv[1].sizes());
    EXPECT_EQ(to_q.stride(2), one.all_heads() * one.width);
    EXPECT_FALSE(lie_in_one(qkv[0], qkv[2], qkv[1]));
    EXPECT_FALSE(lie_in_one(qkv[0], qkv[1], qkv[2].clone()));
    one.in_one = false;
    const Many apart = heads_of(one, leaves_of(one));
    const auto [own_q, own_k, own_v] = fresh_gradients(apart[0], apart[1], apart[2]);
    EXPECT_FALSE(own_v.is_alias_of(own_q));
    EXPECT_EQ(own_k.strides(), apart[1].strides());
  }
}

// As the operators that come with torch: a dry run gives what the CPU gives.
TEST(Attend, MetaGivesTheSameSizesAndStrides) {
  const AttendCase one = {.shared = 2, .in_one = true};
  const Many qkv = heads_of(one, leaves_of(one));
  Many meta;
  const at::Tensor whole = at::empty({2, one.tokens, one.all_heads(), one.width},
                                     at::TensorOptions().dtype(at::kDouble).device(at::kMeta));
  for (const at::Tensor& part : whole.split_with_sizes({one.heads, one.shared, one.shared}, 2))
    meta.push_back(part.transpose(1, 2));
  const auto [out, sums] = called(one, qkv);
  const auto [meta_out, meta_sums] = called(one, meta);
  EXPECT_EQ(out.strides(), meta_out.strides());
  EXPECT_EQ(sums.strides(), meta_sums.strides());
  EXPECT_EQ(sums.dtype(), meta_sums.dtype());
}

}  // namespace
}  // namespace braid::kernels
