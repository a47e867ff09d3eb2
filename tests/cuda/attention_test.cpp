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
};

// By token, as models have them: [batch, tokens, heads, width] seen through a transpose.
at::Tensor heads_on_host(int64_t heads, const AttentionCase& of, std::string_view name) {
  at::Tensor values = at::empty({2, of.tokens, heads, of.width}, c10::kDouble);
  fill_normal(values, random_key(3, name));
  return values.to(c10::kBFloat16);
}

Many attention_inputs(const AttentionCase& of) {
  return {heads_on_host(of.heads, of, "q"), heads_on_host(of.shared, of, "k"),
          heads_on_host(of.shared, of, "v")};
}

// The result by token, then the gradients of q, k, v.
Many attention_results(const AttentionCase& of, Many inputs) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  const auto turned = [&](size_t i) { return inputs[i].transpose(1, 2); };
  const at::Tensor y =
      kernels::attention(turned(0), turned(1), turned(2), {.causal = of.causal}).transpose(1, 2);
  const at::Tensor grad = heads_on_host(of.heads, of, "grad").to(y.options());
  Many all = torch::autograd::grad({y}, inputs, {grad});
  all.insert(all.begin(), y.detach());
  return all;
}

void expect_attention(const AttentionCase& of) {
  SCOPED_TRACE(testing::Message() << of.heads << "/" << of.shared << " heads, " << of.tokens
                                  << " tokens, width " << of.width << (of.causal ? " causal" : ""));
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
