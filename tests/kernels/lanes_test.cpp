// SPDX-License-Identifier: BSD-3-Clause
// Zeros between numbers: sizes, places, gradients, and norms and layers that carry them.
#include "braid/kernels/lanes.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "braid/kernels/norm.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

TEST(Lanes, FollowDtypeAndDevice) {
  EXPECT_EQ(lanes_of_width(180, at::kBFloat16, at::kCUDA).lanes, 192);
  EXPECT_EQ(lanes_of_width(60, at::kHalf, at::kCUDA).lanes, 64);
  EXPECT_EQ(lanes_of_width(240, at::kBFloat16, at::kCUDA).lanes, 240);
  EXPECT_EQ(lanes_of_head(30, at::kBFloat16, at::kCUDA).lanes, 32);
  EXPECT_EQ(lanes_of_head(32, at::kBFloat16, at::kCUDA).lanes, 32);
  for (const auto& [dtype, device] :
       {std::pair(at::kFloat, at::kCUDA), {at::kBFloat16, at::kCPU}}) {
    EXPECT_FALSE(lanes_of_width(180, dtype, device).padded());
    EXPECT_FALSE(lanes_of_head(30, dtype, device).padded());
  }
}

TEST(Lanes, PutZerosBehindEachUnit) {
  const at::Tensor x = at::arange(1, 13, at::kFloat).view({2, 6});
  const at::Tensor y = pad_lanes(x, {.rows = {1, 2}, .columns = {3, 4}}, at::kFloat);
  const at::Tensor wanted = at::tensor({1, 2, 3, 0, 4,  5,  6,  0, 0, 0, 0, 0, 0, 0, 0, 0,
                                        7, 8, 9, 0, 10, 11, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  EXPECT_TRUE(y.equal(wanted.to(at::kFloat).view({4, 8})));
  EXPECT_TRUE(trim_last(pad_last(x, {3, 5}, at::kFloat), {3, 5}, at::kFloat).equal(x));
}

TEST(Lanes, OfAConvolutionAreThoseOfItsChannels) {
  const at::Tensor w = test::drawn({5, 3, 3, 3}, 1, "w").requires_grad_(),
                   x = test::drawn({2, 3, 6, 7}, 2, "x"), grad = test::drawn({2, 5, 6, 7}, 3, "g");
  const at::Tensor plain = at::conv2d(x, w, {}, 1, 1);
  const at::Tensor wide = pad_lanes(w, {.rows = {5, 8}, .columns = {3, 4}}, at::kDouble);
  EXPECT_TRUE(wide.is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor image = pad_last(x.permute({0, 2, 3, 1}), {3, 4}, at::kDouble);
  const at::Tensor y = at::conv2d(image.permute({0, 3, 1, 2}), wide, {}, 1, 1);
  EXPECT_EQ(y.narrow(1, 5, 3).abs().sum().item<double>(), 0);
  const at::Tensor trimmed = trim_last(y.permute({0, 2, 3, 1}), {5, 8}, at::kDouble);
  EXPECT_TRUE(at::allclose(trimmed.permute({0, 3, 1, 2}), plain));
  const at::Tensor got = torch::autograd::grad({trimmed.permute({0, 3, 1, 2})}, {w}, {grad})[0];
  EXPECT_TRUE(at::allclose(got, torch::autograd::grad({plain}, {w}, {grad})[0]));
  EXPECT_TRUE(got.is_contiguous());
}

struct Block {  // norm, layer, sum
  at::Tensor out, x, weight, matrix, bias;
};

// A pre-norm block of width 6 with and without lanes.
Block block_of(int64_t lanes) {
  const Lanes wide = {6, lanes};
  const auto leaf = [](at::IntArrayRef sizes, const char* name) {
    return test::drawn(sizes, 5, name).requires_grad_();
  };
  const at::Tensor x = leaf({4, 6}, "x"), weight = leaf({6}, "weight"), shift = leaf({6}, "shift"),
                   matrix = leaf({6, 6}, "matrix"), bias = leaf({6}, "bias");
  const NormOptions options = {.lanes = lanes};
  const at::Tensor y = norm_rows(x, {weight, shift}, options);
  const at::Tensor branch = linears(
      y, {{pad_lanes(matrix, {wide, wide}, at::kDouble), pad_last(bias, wide, at::kDouble)}})[0];
  const auto [sum, z] = add_norm_rows(x, branch, {weight, shift}, options);
  const at::Tensor out = add_trimmed(sum, z.mul(z));
  const auto grads =
      torch::autograd::grad({out}, {x, weight, matrix, bias}, {test::drawn({4, 6}, 6, "grad")});
  return {out.detach(), grads[0], grads[1], grads[2], grads[3]};
}

TEST(Lanes, ChangeNeitherResultsNorGradients) {
  const Block plain = block_of(6), wide = block_of(8);
  EXPECT_TRUE(at::allclose(wide.out, plain.out, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(wide.x, plain.x, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(wide.weight, plain.weight, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(wide.matrix, plain.matrix, 1e-13, 1e-13));
  EXPECT_TRUE(at::allclose(wide.bias, plain.bias, 1e-13, 1e-13));
}

TEST(Lanes, OfNothingAreNothing) {
  const at::Tensor none = at::zeros({0, 6}, at::kDouble);
  EXPECT_EQ(pad_last(none, {6, 8}, at::kDouble).sizes(), at::IntArrayRef({0, 8}));
  EXPECT_EQ(add_trimmed(none, at::zeros({0, 8}, at::kDouble)).sizes(), at::IntArrayRef({0, 6}));
}

}  // namespace
}  // namespace braid::kernels
