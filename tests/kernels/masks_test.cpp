// SPDX-License-Identifier: BSD-3-Clause
// Bits for truth values and bytes for numbers: what comes back, and how far off it may be.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <tuple>

#include "braid/core/rng.h"
#include "braid/kernels/masks.h"

namespace braid::kernels {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

at::Tensor drawn_values(at::IntArrayRef shape, std::string_view name,
                        c10::ScalarType dtype = c10::kFloat) {
  at::Tensor values = at::empty(shape, dtype);
  fill_normal(values, random_key(7, name));
  return values;
}

template <class Signature>
auto by_ops(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

class BitsOf : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(SoManyElements, BitsOf, testing::Values(0, 1, 7, 8, 9, 64, 100003));

TEST_P(BitsOf, TruthValuesComeBackFromAnEighthOfTheBytes) {
  const at::Tensor mask = drawn_values({GetParam()}, "mask").gt(0.3);
  const at::Tensor bits = pack_bits(mask);
  EXPECT_EQ(static_cast<int64_t>(bits.nbytes()), (GetParam() + 7) / 8);
  EXPECT_TRUE(at::equal(unpack_bits(bits, mask.sizes()), mask));
  EXPECT_TRUE(
      at::equal(by_ops<at::Tensor(const at::Tensor&)>("braid::pack_bits_by_ops").call(mask), bits));
  EXPECT_TRUE(
      at::equal(by_ops<at::Tensor(const at::Tensor&, at::IntArrayRef)>("braid::unpack_bits_by_ops")
                    .call(bits, mask.sizes()),
                mask));
}

TEST(Bits, FollowTheSizesNotTheMemory) {
  const at::Tensor mask = drawn_values({5, 12}, "mask").gt(0).t().narrow(0, 2, 9);
  EXPECT_TRUE(at::equal(unpack_bits(pack_bits(mask), mask.sizes()), mask));
}

class BlocksOf : public testing::TestWithParam<std::tuple<c10::ScalarType, int64_t>> {};
INSTANTIATE_TEST_SUITE_P(DtypeAndElements, BlocksOf,
                         testing::Combine(testing::Values(c10::kFloat, c10::kDouble, c10::kBFloat16,
                                                          c10::kHalf),
                                          testing::Values(0, 1, 255, 256, 257, 40000)));

TEST_P(BlocksOf, AreOffByHalfAStepAtMost) {
  const auto [dtype, count] = GetParam();
  const at::Tensor x = drawn_values({count}, "x", dtype);
  const Blocks blocks = quantize_blocks(x);
  EXPECT_EQ(blocks.codes.numel(), count);
  EXPECT_EQ(blocks.codes.scalar_type(), c10::kChar);
  EXPECT_EQ(blocks.scales.numel(), (count + 255) / 256);
  const at::Tensor back = dequantize_blocks(blocks, dtype);
  EXPECT_EQ(back.scalar_type(), dtype);
  const double rounding = dtype == c10::kBFloat16 ? 1.0 / 256 : dtype == c10::kHalf ? 1e-3 : 1e-6;
  for (int64_t i = 0; i < blocks.scales.numel(); ++i) {
    const int64_t first = i * 256, here = std::min<int64_t>(256, count - first);
    const at::Tensor in = x.narrow(0, first, here).to(c10::kDouble);
    const at::Tensor out = back.narrow(0, first, here).to(c10::kDouble);
    const double largest = in.abs().max().item<double>();
    EXPECT_LE(out.sub(in).abs().max().item<double>(), largest * (1.0 / 254 + rounding));
  }
}

TEST_P(BlocksOf, EqualTheSameInPlainOperators) {
  const auto [dtype, count] = GetParam();
  const at::Tensor x = drawn_values({count}, "x", dtype);
  const Blocks blocks = quantize_blocks(x);
  if (count == 0) return;
  const auto [codes, scales] =
      by_ops<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&)>("braid::quantize_blocks_by_ops")
          .call(x);
  EXPECT_TRUE(at::equal(codes, blocks.codes));
  EXPECT_TRUE(at::equal(scales, blocks.scales));
  const at::Tensor back = by_ops<at::Tensor(const at::Tensor&, const at::Tensor&, c10::ScalarType)>(
                              "braid::dequantize_blocks_by_ops")
                              .call(codes, scales, dtype);
  EXPECT_TRUE(at::equal(back, dequantize_blocks(blocks, dtype)));
}

TEST(Blocks, ZerosStayZerosAndWhatIsNotFiniteIsSeen) {
  at::Tensor x = at::zeros({768});
  x.narrow(0, 256, 512).fill_(1);
  x[300].fill_(infinity);
  x[600].fill_(nan);
  const at::Tensor back = dequantize_blocks(quantize_blocks(x), c10::kFloat);
  EXPECT_TRUE(at::equal(back.narrow(0, 0, 256), at::zeros({256})));
  EXPECT_TRUE(back.narrow(0, 256, 512).isnan().all().item<bool>());
}

// A gradient with infinities: where the gate is closed it must be 0, not NaN.
at::Tensor odd_gradient(const at::Tensor& y) {
  at::Tensor grad = drawn_values(y.sizes(), "grad", y.scalar_type());
  grad.view({-1}).narrow(0, 0, 20).fill_(infinity);
  return grad;
}

TEST(PackedRelu, GradientsAreTorchsToTheBitFromABitAnElement) {
  for (const c10::ScalarType dtype : {c10::kFloat, c10::kDouble, c10::kBFloat16}) {
    const at::Tensor x = drawn_values({9, 37}, "x", dtype).requires_grad_();
    x.detach()[1][3].fill_(nan);
    x.detach()[2][3].fill_(0);
    const at::Tensor wanted = at::relu(x), got = relu(x, /*packed=*/true);
    const at::Tensor grad = odd_gradient(wanted);
    EXPECT_TRUE(at::equal(got.nan_to_num(), wanted.nan_to_num()));
    EXPECT_TRUE(at::equal(torch::autograd::grad({got}, {x}, {grad})[0],
                          torch::autograd::grad({wanted}, {x}, {grad})[0]));
  }
}

TEST(PackedRelu, LeakyToo) {
  for (const c10::ScalarType dtype : {c10::kFloat, c10::kDouble, c10::kBFloat16}) {
    const at::Tensor x = drawn_values({9, 37}, "x", dtype).t().requires_grad_();
    const at::Tensor wanted = at::leaky_relu(x, 0.01), got = leaky_relu(x, 0.01, true);
    const at::Tensor grad = odd_gradient(wanted).contiguous();
    EXPECT_TRUE(at::equal(got, wanted));
    EXPECT_TRUE(at::equal(torch::autograd::grad({got}, {x}, {grad})[0],
                          torch::autograd::grad({wanted}, {x}, {grad})[0]));
    const at::Tensor gated = by_ops<at::Tensor(const at::Tensor&, const at::Tensor&, double)>(
                                 "braid::gate_by_bits_by_ops")
                                 .call(grad, pack_bits(x.detach()), 0.01);
    EXPECT_TRUE(
        at::equal(gated, torch::autograd::grad({leaky_relu(x, 0.01, true)}, {x}, {grad})[0]));
  }
}

}  // namespace
}  // namespace braid::kernels
