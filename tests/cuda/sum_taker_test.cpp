// SPDX-License-Identifier: BSD-3-Clause
// Sums of gradients that kernels give on the way, on the GPU: the gradients are to the bit those of
// the kernel without sums, the sums those of what was written.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "kernels/column_sum.h"
#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

using kernels::Activation;
using test::drawn;

constexpr auto f64 = c10::kDouble, f32 = c10::kFloat, b16 = c10::kBFloat16, h16 = c10::kHalf;

// As far as rounding of fp32 sums goes.
void expect_sum(const at::Tensor& sum, const at::Tensor& rows, const std::string& what) {
  const at::Tensor wide = rows.to(f64).reshape({-1, rows.size(-1)});
  const at::Tensor off = sum.to(f64).sub(wide.sum(0)).abs();
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
                                    {0, 8}})
    for (const auto dtype : {f64, f32, b16, h16})
      for (const auto kind : {Activation::gelu, Activation::gelu_tanh}) {
        const auto what = testing::Message() << rows << " x " << width << " " << dtype;
        const at::Tensor h = drawn({rows, width}, 1, "h").to(gpu()).to(dtype).unsqueeze(0);
        at::Tensor plain = drawn({1, rows, width}, 1, "g").to(gpu()).to(dtype);
        at::Tensor summed = plain.clone();
        const auto want = kernels::activation_back({kind, h}, plain);
        const auto got = kernels::activation_back({kind, h}, summed, dtype == f64 ? f64 : f32);
        EXPECT_TRUE(summed.equal(plain) && got.value.equal(want.value)) << what.GetString();
        expect_sum(got.sum, plain, what.GetString());
        at::Tensor again = drawn({1, rows, width}, 1, "g").to(gpu()).to(dtype);
        const auto twice = kernels::activation_back({kind, h}, again, dtype);
        EXPECT_EQ(twice.sum.scalar_type(), dtype);
        EXPECT_TRUE(twice.sum.equal(got.sum.to(dtype))) << what.GetString();
        if (rows > 0) expect_sum(kernels::column_sum(plain[0], f32), plain, "column_sum");
      }
}

TEST_F(OnGpu, AnMlpTakesTheSumOfItsGradient) {
  const auto grads = [&](bool on_the_way, bool twice) {
    const auto leaf = [&](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
      return drawn(sizes, 1, name).to(gpu()).to(dtype).detach().requires_grad_();
    };
    const at::Tensor x = leaf({2, 100, 64}, "x", b16), w1 = leaf({96, 64}, "w1", f32),
                     b1 = leaf({96}, "b1", f32), w2 = leaf({64, 96}, "w2", f32);
    const at::Tensor h = kernels::linears(x, {{w1, b1}})[0];
    std::vector<at::Tensor> y =
        kernels::linears({Activation::gelu_tanh, on_the_way ? h : h.view_as(h)}, {{w2}});
    if (twice) y.push_back(h);
    std::vector<at::Tensor> seeds;
    for (const at::Tensor& each : y)
      seeds.push_back(drawn(each.sizes(), 2, "dy").to(gpu()).to(b16));
    return torch::autograd::grad(y, {x, w1, b1, w2}, seeds);
  };
  for (const bool twice : {false, true}) {
    const auto got = grads(true, twice), want = grads(false, twice);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(got[i].sub(want[i]).norm().item<double>(), 1e-5 * want[i].norm().item<double>())
          << i;
  }
}

}  // namespace
}  // namespace braid
