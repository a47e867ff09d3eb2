// SPDX-License-Identifier: BSD-3-Clause
// Sums of gradients that kernels give on the way, on the GPU: the gradients are to the bit those of
// the kernel without sums, the sums those of what was written.
#include <gtest/gtest.h>

#include <optional>

#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "braid/kernels/norm.h"
#include "kernels/column_sum.h"
#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

using kernels::Activation;
using test::drawn;

// As far as rounding of fp32 sums goes.
void expect_sum(const at::Tensor& sum, const at::Tensor& rows, const std::string& what) {
  const at::Tensor wide = rows.to(c10::kDouble).reshape({-1, rows.size(-1)});
  const at::Tensor off = sum.to(c10::kDouble).sub(wide.sum(0)).abs();
  const double limit = c10::elementSize(sum.scalar_type()) == 2 ? 4e-3 : 1e-5;
  EXPECT_TRUE(off.le(wide.abs().sum(0).mul(limit)).all().item<bool>()) << what;
}

TEST_F(OnGpu, GeluSumsItsGradientOnTheWay) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1},
                                    {1, 72},
                                    {33, 7},
                                    {5000, 72},
                                    {70, 1000},
                                    {64, 385},
                                    {16384, 3072},
                                    {3000, 6144},
                                    {0, 8}}) {
    if (emulated_gpu && rows > 2000) continue;
    for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf})
      for (const auto kind : {Activation::gelu, Activation::gelu_tanh}) {
        const auto what = testing::Message() << rows << " x " << width << " " << dtype;
        const at::Tensor h = drawn({rows, width}, 1, "h").to(gpu()).to(dtype).unsqueeze(0);
        at::Tensor plain = drawn({1, rows, width}, 1, "g").to(gpu()).to(dtype);
        at::Tensor summed = plain.clone();
        const auto want = kernels::activation_back({kind, h}, plain);
        const auto got = kernels::activation_back(
            {kind, h}, summed, dtype == c10::kDouble ? c10::kDouble : c10::kFloat);
        EXPECT_TRUE(summed.equal(plain) && got.value.equal(want.value)) << what.GetString();
        expect_sum(got.sum, plain, what.GetString());
        at::Tensor again = drawn({1, rows, width}, 1, "g").to(gpu()).to(dtype);
        const auto twice = kernels::activation_back({kind, h}, again, dtype);
        EXPECT_EQ(twice.sum.scalar_type(), dtype);
        EXPECT_TRUE(twice.sum.equal(got.sum.to(dtype))) << what.GetString();
        if (rows > 0) expect_sum(kernels::column_sum(plain[0], c10::kFloat), plain, "column_sum");
      }
  }
}

TEST_F(OnGpu, AnMlpTakesTheSumOfItsGradient) {
  const auto grads = [&](bool on_the_way, bool twice) {
    const auto leaf = [&](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
      return drawn(sizes, 1, name).to(gpu()).to(dtype).detach().requires_grad_();
    };
    const at::Tensor x = leaf({2, 100, 64}, "x", c10::kBFloat16),
                     w1 = leaf({96, 64}, "w1", c10::kFloat), b1 = leaf({96}, "b1", c10::kFloat),
                     w2 = leaf({64, 96}, "w2", c10::kFloat);
    const at::Tensor h = kernels::linears(x, {{w1, b1}})[0];
    std::vector<at::Tensor> y =
        kernels::linears({Activation::gelu_tanh, on_the_way ? h : h.view_as(h)}, {{w2}});
    if (twice) y.push_back(h);
    std::vector<at::Tensor> seeds;
    for (const at::Tensor& each : y)
      seeds.push_back(drawn(each.sizes(), 2, "dy").to(gpu()).to(c10::kBFloat16));
    return torch::autograd::grad(y, {x, w1, b1, w2}, seeds);
  };
  for (const bool twice : {false, true}) {
    const auto got = grads(true, twice), want = grads(false, twice);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(got[i].sub(want[i]).norm().item<double>(), 1e-5 * want[i].norm().item<double>())
          << i;
  }
}

struct SummedNorm {
  int64_t samples, width;
  c10::ScalarType stream, compute;
  bool dropped = false;
  int64_t lanes = 0;
  std::optional<c10::ScalarType> weights = {};  // else those of the stream
};

// A layer whose output is the branch of a norm: the gradient of its bias is the sum of what it got.
void expect_summed_branch(const SummedNorm& of) {
  const auto what = testing::Message() << of.samples << " x 3 x " << of.width << " " << of.stream
                                       << " " << of.compute << " " << of.dropped;
  const c10::Device there(c10::kCUDA, 0);
  const auto leaf = [&](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
    return drawn(sizes, 1, name).to(there).to(dtype).detach().requires_grad_();
  };
  const int64_t out = of.lanes > 0 ? of.lanes : of.width;
  const c10::ScalarType weights = of.weights.value_or(of.stream);
  const at::Tensor x = leaf({of.samples, 3, of.width}, "x", of.stream),
                   in = leaf({of.samples, 3, 8}, "in", of.compute),
                   w = leaf({out, 8}, "w", weights), b = leaf({out}, "b", weights),
                   weight = leaf({of.width}, "weight", weights),
                   bias = leaf({of.width}, "bias", weights);
  at::Tensor seen;
  const auto grads = [&](bool on_the_way) {
    const at::Tensor h = kernels::linears(in, {{w, b}})[0], g = on_the_way ? h : h.view_as(h);
    h.register_hook([&](const at::Tensor& grad) { seen = grad; });
    const auto branch =
        of.dropped ? kernels::drop_branch(g, {.rate = 0.4, .key = {5}}) : kernels::Branch(g);
    const auto [sum, y] =
        kernels::add_norm_rows(x, branch, {weight, bias}, {.dtype = of.compute, .lanes = of.lanes});
    return torch::autograd::grad(
        {sum, y}, {b, x, weight, bias, w},
        {drawn(sum.sizes(), 2, "ds").to(sum.options()), drawn(y.sizes(), 2, "dy").to(y.options())});
  };
  const auto want = grads(false), got = grads(true);
  expect_sum(got[0], seen, what.GetString());
  for (size_t i = 1; i < got.size(); ++i)
    EXPECT_LE(got[i].sub(want[i]).norm().item<double>(), 2e-3 * want[i].norm().item<double>())
        << what.GetString() << " result " << i;
}

TEST_F(OnGpu, ANormSumsTheGradientOfItsBranchOnTheWay) {
  constexpr int64_t many = on_gpu_or(200, 8);
  for (const int64_t width : {7, 180, 384, 768, 1024, 1536, 4096, 8192, 20000})
    for (const bool dropped : {false, true}) {
      expect_summed_branch({many, width, c10::kFloat, c10::kBFloat16, dropped});
      expect_summed_branch({11, width, c10::kFloat, c10::kFloat, dropped});
      expect_summed_branch({11, width, c10::kDouble, c10::kDouble, dropped});
      expect_summed_branch({1, width, c10::kBFloat16, c10::kBFloat16, dropped});
      expect_summed_branch({many, width, c10::kBFloat16, c10::kBFloat16, dropped, 0, c10::kFloat});
    }
  expect_summed_branch({on_gpu_or(20000, 500), 768, c10::kFloat, c10::kBFloat16});
}

TEST_F(OnGpu, ANormSumsTheGradientOfABranchInLanes) {
  for (const bool dropped : {false, true})
    for (const int64_t samples : {int64_t{1}, on_gpu_or(3000, 300)})
      for (const auto stream : {c10::kFloat, c10::kBFloat16})
        expect_summed_branch({samples, 180, stream, c10::kBFloat16, dropped, 192, c10::kFloat});
}

}  // namespace
}  // namespace braid
