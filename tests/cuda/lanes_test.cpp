// SPDX-License-Identifier: BSD-3-Clause
// Lanes and norms that carry them on the GPU against the CPU, and SwinIR of an odd width.
#include "braid/kernels/lanes.h"

#include <gtest/gtest.h>

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/norm.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "support/cuda.h"

namespace braid {
namespace {

double lanes_off(const at::Tensor& found, const at::Tensor& expected) {
  const at::Tensor a = found.to(at::kCPU, at::kDouble), b = expected.to(at::kDouble);
  return a.sub(b).norm().item<double>() / b.norm().item<double>();
}

TEST_F(OnGpu, LanesEqualTheirCpuTwins) {
  for (const auto narrow : {at::kBFloat16, at::kHalf})
    for (const auto wide : {at::kFloat, narrow}) {
      const at::Tensor w = at::randn({60, 90}, wide), conv = at::randn({45, 30, 3, 3}, wide),
                       x = at::randn({7, 180}, wide), branch = at::randn({7, 192}, narrow);
      const kernels::WeightLanes lanes = {.rows = {30, 32}, .columns = {90, 128}};
      const kernels::WeightLanes channels = {.rows = {45, 64}, .columns = {30, 64}};
      const auto on = [&](const at::Tensor& t) { return t.to(gpu()); };
      EXPECT_TRUE(kernels::pad_lanes(on(w), lanes, narrow)
                      .cpu()
                      .equal(kernels::pad_lanes(w, lanes, narrow)));
      EXPECT_TRUE(kernels::pad_lanes(on(conv), channels, narrow)
                      .cpu()
                      .equal(kernels::pad_lanes(conv, channels, narrow)));
      EXPECT_TRUE(kernels::trim_last(on(branch), {180, 192}, wide)
                      .cpu()
                      .equal(kernels::trim_last(branch, {180, 192}, wide)));
      EXPECT_LT(lanes_off(kernels::add_trimmed(on(x), on(branch)), kernels::add_trimmed(x, branch)),
                1e-2);
    }
}

// Parameters may be parts of a flat buffer, at any number of it.
TEST_F(OnGpu, LanesTakeTensorsThatAreNotAligned) {
  const kernels::WeightLanes lanes = {.rows = {30, 32}, .columns = {90, 128}};
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const int64_t first : {1, 2, 3}) {
      const at::Tensor flat = at::randn({60 * 90 + 4}, dtype), there = flat.to(gpu());
      const auto part = [&](const at::Tensor& of) {
        return of.narrow(0, first, 60 * 90).view({60, 90});
      };
      EXPECT_TRUE(kernels::pad_lanes(part(there), lanes, at::kBFloat16)
                      .cpu()
                      .equal(kernels::pad_lanes(part(flat), lanes, at::kBFloat16)))
          << first << dtype;
    }
}

TEST_F(OnGpu, NormsInLanesEqualTheirCpuTwins) {
  const at::Tensor x = at::randn({37, 180}), branch = at::randn({37, 192}).to(at::kBFloat16),
                   weight = at::randn({180}), bias = at::randn({180});
  const auto run = [&](c10::Device device) {
    const auto leaf = [&](const at::Tensor& t) { return t.to(device).requires_grad_(); };
    const at::Tensor a = leaf(x), b = leaf(branch), w = leaf(weight), s = leaf(bias);
    const auto [sum, y] =
        kernels::add_norm_rows(a, b, {w, s}, {.dtype = at::kBFloat16, .lanes = 192});
    const auto grads = torch::autograd::grad({sum, y}, {a, b, w, s}, {sum.detach(), y.detach()});
    return std::vector<at::Tensor>{sum, y, grads[0], grads[1], grads[2], grads[3]};
  };
  const auto expected = run(c10::kCPU), found = run(gpu());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(lanes_off(found[i].detach(), expected[i].detach()), 1e-2) << i;
  for (const size_t i : {size_t{1}, size_t{3}})
    EXPECT_EQ(found[i].detach().narrow(1, 180, 12).abs().sum().item<float>(), 0);
}

// Gradients of a SwinIR whose width, heads and channels all get lanes.
TEST_F(OnGpu, SwinirInLanesHasTheGradientsOfFp32) {
  nn::SwinirOptions options = {.image = {16, 16}, .width = 60, .depths = {2}, .heads = {6}};
  options.residual = nn::Residual::conv3;
  options.drop_path = 0;
  const at::Tensor input = at::randn({2, 3, 16, 16}), target = at::randn({2, 3, 32, 32});
  const auto grads = [&](const char* policy, c10::Device device) {
    const auto model =
        nn::make_swinir(options, {.seed = 2, .precision = precision(policy), .device = device});
    nn::loss(nn::Loss::mse, model->forward(input.to(device), {.training = true}), target.to(device))
        .backward();
    std::vector<std::pair<std::string, at::Tensor>> all;
    for (const Param& param : model->params())
      all.emplace_back(param.name, param.tensor.grad().to(at::kCPU, at::kDouble));
    return all;
  };
  const auto expected = grads("fp32", c10::kCPU), found = grads("bf16", gpu());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_LT(lanes_off(found[i].second, expected[i].second), 8e-2) << expected[i].first;
}

}  // namespace
}  // namespace braid
