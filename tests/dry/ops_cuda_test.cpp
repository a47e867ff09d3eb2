// SPDX-License-Identifier: BSD-3-Clause
// Attention kernels of CUDA on dry CUDA tensors, in a process that may have no GPU: layouts of
// their results, and the scratch that their backward passes take, worked out by hand.
#include <gtest/gtest.h>

#include <map>

#include "braid/kernels/attention.h"
#include "braid/kernels/parts.h"
#include "braid/memory/instruments.h"
#include "support/op_case.h"

namespace braid {
namespace {

using Attend = std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)>;

struct DryAttention {
  test::Tensors found;  // result and gradients
  std::map<std::string, memory::Scratch> scratch;
};

// q [2, 200, 4, 64] by token, k and v with `heads` heads, seen as [batch, heads, tokens, width].
DryAttention dry_attention(const Attend& attend, c10::ScalarType dtype, int64_t heads = 4) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = true});
  const test::OpCase op = {
      "attention",
      {{{2, 200, 4, 64}, dtype}, {{2, 200, heads, 64}, dtype}, {{2, 200, heads, 64}, dtype}},
      [&](test::Tensors& x) {
        return test::Tensors{
            attend(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2))};
      }};
  test::Tensors inputs = test::inputs_of(op, c10::Device(c10::kCUDA, 0));
  DryAttention result;
  result.found = test::forward_backward(op, inputs);
  result.scratch = ledger.scratch(memory::cuda(0));
  return result;
}

at::Tensor flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, true));
}

at::Tensor cudnn(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return kernels::attention(q, k, v, {.causal = true});  // at these sizes by cuDNN
}

at::Tensor efficient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return std::get<0>(at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, true));
}

void expect_layouts(const test::Tensors& found, int64_t heads = 4) {
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].sizes(), (at::IntArrayRef{2, 4, 200, 64}));
  EXPECT_EQ(found[0].strides(), (at::IntArrayRef{51200, 64, 256, 1}));
  EXPECT_EQ(found[1].sizes(), (at::IntArrayRef{2, 200, 4, 64}));
  for (size_t i = 2; i < 4; ++i)
    EXPECT_EQ(found[i].sizes(), (at::IntArrayRef{2, 200, heads, 64})) << i;
  for (const at::Tensor& tensor : found) EXPECT_TRUE(tensor.is_cuda());
}

constexpr int64_t rows = 2 * 4 * 256;  // batch, heads, tokens rounded up to 128

TEST(DryCudaAttention, FlashAddsUpTheGradientOfQInFp32) {
  const DryAttention dry = dry_attention(flash, c10::kBFloat16);
  expect_layouts(dry.found);
  const auto& backward = dry.scratch.at("aten::_scaled_dot_product_flash_attention_backward");
  EXPECT_EQ(backward.bytes, 4 * rows + 4 * rows * 64);
}

TEST(DryCudaAttention, FlashSpreadsSharedHeads) {
  const DryAttention dry = dry_attention(flash, c10::kBFloat16, 2);
  expect_layouts(dry.found, 2);
  const auto& backward = dry.scratch.at("aten::_scaled_dot_product_flash_attention_backward");
  const int64_t spread = 2 * 200 * 4 * 64 * 2;  // k for each head of q, in bf16
  EXPECT_EQ(backward.bytes, 4 * rows + 4 * rows * 64 + 2 * spread);
}

TEST(DryCudaAttention, EfficientAddsUpInTiles) {
  const DryAttention dry = dry_attention(efficient, c10::kFloat);
  expect_layouts(dry.found);
  const auto& backward = dry.scratch.at("aten::_scaled_dot_product_efficient_attention_backward");
  const int64_t sums = 4 * 2 * 4 * 200, tiles = 2 * 4 * 4 * (64 * 64 * 4 + 16);
  EXPECT_EQ(backward.bytes, sums + tiles);  // as an H200 took
}

TEST(DryCudaAttention, CudnnTakesWhatItTookOnAnH200) {
  const int64_t sums = 2 * 4 * 200, spread = 2 * 200 * 4 * 64 * 2;
  for (const int64_t heads : {4, 2}) {
    const DryAttention dry = dry_attention(cudnn, c10::kBFloat16, heads);
    expect_layouts(dry.found, heads);
    const auto& backward = dry.scratch.at("braid::attention_grad");
    EXPECT_EQ(backward.bytes, 256 + 4 * sums + 4 * sums * 64 + (heads == 4 ? 0 : 2 * spread));
  }
}

// q, k, v of one tensor: their gradients are one tensor, too, and nothing is joined.
TEST(DryCudaAttention, GradientsOfPartsAreThatOfTheWhole) {
  constexpr int64_t width = 4 * 64;
  memory::OperatorLog log;
  const memory::Instruments on({.log = &log, .dry = true});
  const auto run = [](test::Tensors& x) {
    test::Tensors qkv = kernels::parts(x[0], 3);
    for (at::Tensor& part : qkv) part = part.view({2, 200, 4, 64}).transpose(1, 2);
    return test::Tensors{cudnn(qkv[0], qkv[1], qkv[2])};
  };
  const test::OpCase op = {"parts", {{{2, 200, 3 * width}, c10::kBFloat16}}, run};
  test::Tensors inputs = test::inputs_of(op, c10::Device(c10::kCUDA, 0));
  const test::Tensors found = test::forward_backward(op, inputs);
  EXPECT_EQ(found[1].sizes(), (at::IntArrayRef{2, 200, 3 * width}));
  EXPECT_EQ(found[1].strides(), (at::IntArrayRef{200 * 3 * width, 3 * width, 1}));
  for (const memory::Operator& ran : log.operators()) EXPECT_NE(ran.name, "aten::cat");
}

}  // namespace
}  // namespace braid
