// SPDX-License-Identifier: BSD-3-Clause
// Parts of a tensor against chunk: the same values and gradients, and no copy where the gradients
// of the parts lie side by side.
#include "braid/kernels/parts.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

using Many = std::vector<at::Tensor>;

at::Tensor drawn_whole() { return test::drawn({2, 5, 12}, 1, "whole"); }

// The gradient of the whole; grads: of those parts that are used.
at::Tensor whole_gradient(const at::Tensor& whole, const Many& parts, const Many& grads) {
  Many used, given;
  for (size_t i = 0; i < grads.size(); ++i)
    if (grads[i].defined()) {
      used.push_back(parts[i]);
      given.push_back(grads[i]);
    }
  return torch::autograd::grad(used, {whole}, given)[0];
}

void expect_as_chunk(const Many& grads) {
  const at::Tensor whole = drawn_whole().requires_grad_();
  const Many ours = parts(whole, 3), theirs = whole.chunk(3, -1);
  ASSERT_EQ(ours.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(ours[i].equal(theirs[i]));
    EXPECT_EQ(ours[i].strides(), theirs[i].strides());
  }
  const at::Tensor found = whole_gradient(whole, ours, grads);
  EXPECT_EQ(found.sizes(), whole.sizes());
  EXPECT_TRUE(found.equal(whole_gradient(whole, theirs, grads)));
}

TEST(Parts, GradientsOfTheirOwnAreJoined) {
  Many grads;
  for (const char* name : {"a", "b", "c"}) grads.push_back(test::drawn({2, 5, 4}, 2, name));
  expect_as_chunk(grads);
}

TEST(Parts, WhatIsNotUsedHasNoGradient) {
  const at::Tensor grad = test::drawn({2, 5, 4}, 2, "a");
  expect_as_chunk({grad, {}, grad});
  expect_as_chunk({{}, grad, {}});
}

TEST(Parts, GradientsSideBySideAreThatOfTheWhole) {
  const at::Tensor whole = drawn_whole().requires_grad_(), grad = test::drawn({2, 5, 12}, 2, "all");
  expect_as_chunk(grad.chunk(3, -1));
  const at::Tensor found = whole_gradient(whole, parts(whole, 3), grad.chunk(3, -1));
  EXPECT_TRUE(found.equal(grad));
  EXPECT_EQ(found.const_data_ptr(), grad.const_data_ptr());
}

TEST(Parts, InAnotherOrderOrWithGapsTheyAreJoined) {
  const at::Tensor grad = test::drawn({2, 5, 12}, 2, "all");
  const Many in_turn = grad.chunk(3, -1);
  expect_as_chunk({in_turn[1], in_turn[0], in_turn[2]});
  expect_as_chunk({in_turn[0], in_turn[0], in_turn[0]});
  const Many wider = test::drawn({2, 5, 15}, 2, "wider").chunk(3, -1);
  expect_as_chunk(
      {wider[0].narrow(-1, 0, 4), wider[1].narrow(-1, 0, 4), wider[2].narrow(-1, 0, 4)});
  const Many of_larger = test::drawn({2, 5, 16}, 2, "larger").narrow(-1, 2, 12).chunk(3, -1);
  expect_as_chunk(of_larger);
}

TEST(Parts, WithoutAGraph) {
  const at::Tensor whole = drawn_whole();
  const Many all = parts(whole, 2);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_FALSE(all[0].requires_grad());
  EXPECT_TRUE(at::cat(all, -1).equal(whole));
}

}  // namespace
}  // namespace braid::kernels
