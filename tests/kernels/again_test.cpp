// SPDX-License-Identifier: BSD-3-Clause
// Linear layers behind an operator that gives its output once more: they do not keep it, and all
// gradients are those of layers that do.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "braid/kernels/norm.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;
using Tensors = std::vector<at::Tensor>;

struct Leaves {
  at::Tensor x, branch, weight, bias, first, first_bias, second;
  Tensors all() const { return {x, branch, weight, bias, first, first_bias, second}; }
};

Leaves leaves_of(c10::ScalarType stream, c10::ScalarType compute) {
  const auto leaf = [](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
    return drawn(sizes, 3, name).to(dtype).requires_grad_();
  };
  return {leaf({2, 5, 6}, "x", stream),  leaf({2, 5, 6}, "branch", compute),
          leaf({6}, "weight", stream),   leaf({6}, "bias", stream),
          leaf({4, 6}, "first", stream), leaf({4}, "first bias", stream),
          leaf({3, 6}, "second", stream)};
}

// The sum, and two layers of its norm; kept: through a view, which no layer sees through.
Tensors outputs_of(const Leaves& l, c10::ScalarType compute, bool kept) {
  const auto [sum, y] = add_norm_rows(l.x, l.branch, {l.weight, l.bias}, {.dtype = compute});
  const at::Tensor z = kept ? y.view_as(y) : y;
  return {sum, linears(z, {{l.first, l.first_bias}})[0], linears(z, {{l.second}})[0]};
}

Tensors grads_of(const Tensors& outputs, const Tensors& inputs, bool keep_graph = false) {
  Tensors seeds;
  for (size_t i = 0; i < outputs.size(); ++i)
    seeds.push_back(
        drawn(outputs[i].sizes(), 4, "seed" + std::to_string(i)).to(outputs[i].scalar_type()));
  return torch::autograd::grad(outputs, inputs, seeds, keep_graph);
}

class ValueAgain : public testing::TestWithParam<std::pair<c10::ScalarType, c10::ScalarType>> {};

TEST_P(ValueAgain, GivesTheGradientsOfAKeptOneToTheBit) {
  const auto [stream, compute] = GetParam();
  const Leaves leaves = leaves_of(stream, compute);
  const Tensors want = grads_of(outputs_of(leaves, compute, true), leaves.all());
  const Tensors got = grads_of(outputs_of(leaves, compute, false), leaves.all());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].equal(want[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Dtypes, ValueAgain,
                         testing::Values(std::pair(c10::kDouble, c10::kDouble),
                                         std::pair(c10::kFloat, c10::kBFloat16),
                                         std::pair(c10::kBFloat16, c10::kBFloat16)));

TEST(ValueAgain, IsNotKept) {
  const Leaves leaves = leaves_of(c10::kDouble, c10::kDouble);
  for (const bool kept : {false, true}) {
    at::Tensor y = add_norm_rows(leaves.x, leaves.branch, {leaves.weight}).y;
    const c10::weak_intrusive_ptr<c10::StorageImpl> memory(
        c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(y.storage().unsafeGetStorageImpl()));
    const at::Tensor z = linears(kept ? y.view_as(y) : y, {{leaves.first}})[0];
    y.reset();
    EXPECT_EQ(memory.expired(), !kept);
  }
}

TEST(ValueAgain, IsGivenAsOftenAsItIsAskedFor) {
  const Leaves leaves = leaves_of(c10::kDouble, c10::kDouble);
  const Tensors outputs = outputs_of(leaves, c10::kDouble, false);
  const Tensors once = grads_of(outputs, leaves.all(), true);
  const Tensors twice = grads_of(outputs, leaves.all());
  for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(twice[i])) << i;
}

TEST(ValueAgain, PartsOfTheGradientsAreThoseOfTheWhole) {
  const Leaves leaves = leaves_of(c10::kDouble, c10::kDouble);
  const Tensors all = leaves.all();
  const Tensors want = grads_of(outputs_of(leaves, c10::kDouble, true), all);
  for (size_t i = 0; i < all.size(); ++i)
    EXPECT_TRUE(grads_of(outputs_of(leaves, c10::kDouble, false), {all[i]})[0].equal(want[i])) << i;
}

TEST(ValueAgain, OutputsThatNobodyUsesHaveNoPart) {
  const Leaves leaves = leaves_of(c10::kDouble, c10::kDouble);
  const Tensors some = {leaves.x, leaves.weight, leaves.second};
  const auto last = [&](bool kept) {
    return grads_of({outputs_of(leaves, c10::kDouble, kept)[2]}, some);
  };
  const Tensors want = last(true), got = last(false);
  for (size_t i = 0; i < some.size(); ++i) EXPECT_TRUE(got[i].equal(want[i])) << i;
}

TEST(ValueAgain, AloneTheSumPassesGradientsOn) {
  const Leaves leaves = leaves_of(c10::kDouble, c10::kDouble);
  const Tensors outputs = outputs_of(leaves, c10::kDouble, false);
  const Tensors got = grads_of({outputs[0]}, {leaves.x, leaves.branch});
  EXPECT_TRUE(got[0].equal(got[1]));
}

}  // namespace
}  // namespace braid::kernels
