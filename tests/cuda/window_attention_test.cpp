// SPDX-License-Identifier: BSD-3-Clause
// Window attention on the GPU against its fp64 CPU twin: results and gradients, tensor cores and
// plain kernels.
#include "braid/kernels/window_attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/cuda.h"

namespace braid {
namespace {

struct WindowOnGpu {
  int64_t batch, rows, columns, heads, head;
  kernels::WindowOptions options;
};

std::vector<at::Tensor> results_of(const WindowOnGpu& one, at::TensorList inputs) {
  const at::Tensor qkv = inputs[0].detach().requires_grad_(),
                   table = inputs[1].detach().requires_grad_();
  const at::Tensor out = kernels::window_attention(qkv, table, one.options);
  std::vector<at::Tensor> all = torch::autograd::grad({out}, {qkv, table}, {inputs[2]});
  all.push_back(out.detach());
  const auto by_hand = kernels::window_attention_grads(inputs[2], qkv, table, one.options);
  EXPECT_TRUE(by_hand.value.equal(out));
  EXPECT_TRUE(by_hand.qkv.equal(all[0]) && by_hand.table.equal(all[1]));
  return all;
}

double off_by(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor wide = found.to(at::kCPU, at::kDouble);
  const double size = expected.norm().item<double>();  // 0: a table of windows of one pixel
  return wide.sub(expected).norm().item<double>() / std::max(size, 1e-300);
}

class WindowAttentionOnGpu : public OnGpu, public testing::WithParamInterface<at::ScalarType> {};

void expect_twin(const WindowOnGpu& one, at::ScalarType dtype) {
  const int64_t w = one.options.window, width = one.heads * one.head;
  const auto drawn = [&](at::IntArrayRef sizes) {  // numbers that the dtype has
    return at::randn(sizes, at::kDouble).to(dtype).to(at::kDouble);
  };
  const std::vector<at::Tensor> exact = {drawn({one.batch, one.rows, one.columns, 3 * width}),
                                         drawn({(2 * w - 1) * (2 * w - 1), one.heads}),
                                         drawn({one.batch, one.rows, one.columns, width})};
  std::vector<at::Tensor> given;
  for (const at::Tensor& x : exact) given.push_back(x.to(c10::Device(c10::kCUDA, 0), dtype));
  if (c10::elementSize(dtype) == 2) given[1] = given[1].to(at::kFloat);
  const auto expected = results_of(one, exact), found = results_of(one, given),
             again = results_of(one, given);
  const double tolerance = dtype == at::kDouble  ? 1e-13
                           : dtype == at::kFloat ? 1e-5
                           : dtype == at::kHalf  ? 2e-3
                                                 : 1e-2;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_LE(off_by(found[i], expected[i]), tolerance)
        << "result " << i << ", heads of " << one.head << ", windows of " << w;
    EXPECT_TRUE(found[i].equal(again[i])) << "result " << i << " differs from run to run";
  }
}

TEST_P(WindowAttentionOnGpu, EqualsItsCpuTwin) {
  const kernels::WindowOptions plain = {.window = 8, .scale = 0.2},
                               shifted = kernels::shifted_windows(8, 0.2),
                               band = {
                                   .window = 8, .scale = 0.2, .roll_columns = 4, .seam_columns = 4};
  for (const int64_t head : {16, 30, 32, 48, 64, 80})
    for (const auto& options : {plain, shifted, band})
      expect_twin({on_gpu_or(2, 1), 16, 24, on_gpu_or(2, 1), head, options}, GetParam());
  if (!emulated_gpu) expect_twin({9, 64, 64, 6, 32, shifted}, GetParam());
  expect_twin({1, 8, 8, 1, 32, shifted}, GetParam());
  expect_twin({2, 9, 6, 3, 5, kernels::shifted_windows(3, 0.4)}, GetParam());
  expect_twin({1, 32, 16, 2, 33, kernels::shifted_windows(16, 0.2)}, GetParam());
  expect_twin({1, 1, 3, 1, 1, {.window = 1, .scale = 1}}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Kernels, WindowAttentionOnGpu,
                         testing::Values(at::kDouble, at::kFloat, at::kBFloat16, at::kHalf));

TEST_F(OnGpu, WindowAttentionHoldsLargeScores) {
  const at::TensorOptions half = at::TensorOptions(gpu()).dtype(at::kBFloat16);
  const at::Tensor qkv = at::randn({1, 16, 16, 96}, half).mul_(300).requires_grad_();
  const at::Tensor table = at::randn({225, 1}, half.dtype(at::kFloat)).mul_(1e4);
  const at::Tensor out = kernels::window_attention(qkv, table, kernels::shifted_windows(8, 0.2));
  out.sum().backward();
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_TRUE(qkv.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace braid
