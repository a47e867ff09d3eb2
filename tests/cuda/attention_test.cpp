// SPDX-License-Identifier: BSD-3-Clause
// kernels/attention.h on the GPU against the CPU in fp64, values and gradients: the kernel of cuDNN
// wherever it is chosen, shared heads, few tokens, and what runs if torch is asked for determinism.
#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/attention.h"
#include "support/cuda.h"

namespace braid {
namespace {

using kernels::AttentionKernel;
using Many = std::vector<at::Tensor>;

struct AttentionCase {
  int64_t heads, shared, tokens, width;
  bool causal = true;
  bool in_one = false;  // q, k, v are parts of one tensor
};

// By token, as models have them: [batch, tokens, heads, width] seen through a transpose.
at::Tensor heads_on_host(int64_t heads, const AttentionCase& of, std::string_view name) {
  at::Tensor values = at::empty({2, of.tokens, heads, of.width}, c10::kDouble);
  fill_normal(values, random_key(3, name));
  return values.to(c10::kBFloat16);
}

Many attention_inputs(const AttentionCase& of) {
  if (of.in_one) return {heads_on_host(of.heads + 2 * of.shared, of, "qkv")};
  return {heads_on_host(of.heads, of, "q"), heads_on_host(of.shared, of, "k"),
          heads_on_host(of.shared, of, "v")};
}

Many by_heads(const AttentionCase& of, const Many& inputs) {
  Many all = inputs;
  if (of.in_one) all = inputs[0].split_with_sizes({of.heads, of.shared, of.shared}, 2);
  for (at::Tensor& part : all) part = part.transpose(1, 2);
  return all;
}

// The result by token, then the gradients of the inputs.
Many attention_with(const AttentionCase& of, Many inputs, const at::Tensor& grad) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  const Many qkv = by_heads(of, inputs);
  const at::Tensor y =
      kernels::attention(qkv[0], qkv[1], qkv[2], {.causal = of.causal}).transpose(1, 2);
  Many all = torch::autograd::grad({y}, inputs, {grad});
  all.insert(all.begin(), y.detach());
  return all;
}

Many attention_results(const AttentionCase& of, const Many& inputs) {
  return attention_with(of, inputs, heads_on_host(of.heads, of, "grad").to(inputs[0].options()));
}

void expect_attention(const AttentionCase& of) {
  SCOPED_TRACE(testing::Message() << of.heads << "/" << of.shared << " heads, " << of.tokens
                                  << " tokens, width " << of.width << (of.causal ? " causal" : "")
                                  << (of.in_one ? " in one" : ""));
  Many host = attention_inputs(of), device;
  for (at::Tensor& input : host) {
    device.push_back(input.to(c10::Device(c10::kCUDA, 0)));
    input = input.to(c10::kDouble);
  }
  const Many exact = attention_results(of, host), found = attention_results(of, device);
  for (size_t i = 0; i < exact.size(); ++i) {
    const double off = found[i].cpu().to(c10::kDouble).sub(exact[i]).norm().item<double>();
    EXPECT_LT(off, 1e-2 * exact[i].norm().item<double>() + 1e-5) << "result " << i;
  }
}

TEST_F(OnGpu, AttentionEqualsTheOneOfTheCpuWithGradients) {
  for (const int64_t width : {48, 64, 96, 128, 192, 256})
    for (const bool causal : {true, false}) {
      expect_attention({4, 4, 200, width, causal});
      expect_attention({4, 4, 256, width, causal});
    }
  expect_attention({8, 2, 256, 128});
  expect_attention({8, 2, 200, 64, false});
  expect_attention({6, 1, 128, 64});
}

TEST_F(OnGpu, AttentionOfFewTokens) {
  for (const int64_t tokens : {1, 2, 7, 63, 64, 65}) {
    expect_attention({4, 4, tokens, 64});
    expect_attention({4, 2, tokens, 48, false});
  }
}

TEST_F(OnGpu, AttentionOfPartsOfOneTensor) {
  for (const int64_t width : {48, 64, 128, 192})
    for (const bool causal : {true, false}) {
      expect_attention({4, 4, 200, width, causal, true});
      expect_attention({4, 2, 129, width, causal, true});
    }
  for (const int64_t tokens : {1, 65}) expect_attention({4, 4, tokens, 64, true, true});
  expect_attention({1, 1, 4050, 48, false, true});
  expect_attention({1, 1, 4050, 192, false});
}

// The gradients of q, k and v, each seen by heads.
Many gradients_by_heads(const AttentionCase& of) {
  Many inputs = attention_inputs(of);
  for (at::Tensor& input : inputs) input = input.to(c10::Device(c10::kCUDA, 0)).requires_grad_();
  const Many qkv = by_heads(of, inputs);
  const at::Tensor y = kernels::attention(qkv[0], qkv[1], qkv[2]);
  return torch::autograd::grad({y}, qkv, {y.detach()});
}

TEST_F(OnGpu, GradientsOfAttentionLieAsItsInputsDo) {
  for (const int64_t shared : {4, 2}) {
    const Many one = gradients_by_heads({4, shared, 256, 64, true, true});
    for (size_t i = 1; i < 3; ++i) EXPECT_TRUE(one[i].is_alias_of(one[0])) << i;
    EXPECT_EQ(one[1].storage_offset(), 4 * 64);
    EXPECT_EQ(one[2].storage_offset(), (4 + shared) * 64);
    for (const at::Tensor& part : one) EXPECT_EQ(part.stride(2), (4 + 2 * shared) * 64);
    const Many own = gradients_by_heads({4, shared, 256, 64});
    for (size_t i = 1; i < 3; ++i) EXPECT_FALSE(own[i].is_alias_of(own[0])) << i;
    EXPECT_EQ(own[1].strides(), (at::IntArrayRef{256 * shared * 64, 64, shared * 64, 1}));
  }
}

TEST_F(OnGpu, AttentionIsCaptured) {
  const AttentionCase of = {4, 2, 256, 64, true, true};
  Many inputs = attention_inputs(of), found;
  for (at::Tensor& input : inputs) input = input.to(gpu());
  const at::Tensor grad = heads_on_host(of.heads, of, "grad").to(gpu());
  const Many plain = attention_with(of, inputs, grad);
  const auto pool = accelerator()->capture_pool(0);
  const auto work = [&] { found = attention_with(of, inputs, grad); };
  pool->run(work);  // plans are built before
  const auto captured = pool->capture(work);
  captured->replay();
  for (size_t i = 0; i < plain.size(); ++i) {
    const at::Tensor exact = plain[i].cpu().to(c10::kDouble);
    const double off = found[i].cpu().to(c10::kDouble).sub(exact).norm().item<double>();
    EXPECT_LT(off, 1e-2 * exact.norm().item<double>()) << i;
  }
}

AttentionKernel chosen(int64_t tokens, int64_t width, c10::ScalarType dtype = c10::kBFloat16) {
  const at::Tensor q =
      at::empty({1, 2, tokens, width}, at::TensorOptions().dtype(dtype).device(c10::kCUDA, 0));
  return kernels::attention_kernel(q, q, {});
}

TEST_F(OnGpu, AttentionKernelsAreChosenBySizes) {
  EXPECT_EQ(chosen(128, 64), AttentionKernel::cudnn_cuda);
  EXPECT_EQ(chosen(128, 64, c10::kHalf), AttentionKernel::cudnn_cuda);
  EXPECT_EQ(chosen(1, 64), AttentionKernel::flash_cuda);
  EXPECT_EQ(chosen(128, 60), AttentionKernel::written_out);
  EXPECT_EQ(chosen(128, 64, c10::kFloat), AttentionKernel::efficient_cuda);
  EXPECT_EQ(chosen(128, 64, c10::kDouble), AttentionKernel::written_out);
}

TEST_F(OnGpu, DeterministicAttentionRepeatsItsBits) {
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
  EXPECT_EQ(chosen(512, 64), AttentionKernel::flash_cuda);
  const AttentionCase of = {8, 8, 512, 64};
  Many inputs = attention_inputs(of);
  for (at::Tensor& input : inputs) input = input.to(gpu());
  const Many once = attention_results(of, inputs), again = attention_results(of, inputs);
  at::globalContext().setDeterministicAlgorithms(false, false);
  for (size_t i = 0; i < once.size(); ++i) EXPECT_TRUE(once[i].equal(again[i])) << i;
}

}  // namespace
}  // namespace braid
