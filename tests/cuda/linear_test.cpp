// SPDX-License-Identifier: BSD-3-Clause
// Linear layers with activations, rotary positions and fp8 codes on the GPU against their CPU twins
// in fp64.
#include "braid/kernels/linear.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/fp8.h"
#include "braid/kernels/rotary.h"
#include "support/cuda.h"
#include "support/drawn.h"

namespace braid {
namespace {

using kernels::Activation;
using test::drawn;
using Tensors = std::vector<at::Tensor>;
using GpuOp = std::function<Tensors(const Tensors&)>;

// Rounded to `dtype` first, so that both see the same numbers.
Tensors on_device(const Tensors& inputs, c10::ScalarType dtype, c10::Device device,
                  c10::ScalarType as) {
  Tensors all;
  for (const at::Tensor& x : inputs)
    all.push_back(x.to(dtype).to(as).to(device).detach().requires_grad_());
  return all;
}

Tensors with_gradients_of(const GpuOp& op, const Tensors& inputs) {
  Tensors outputs = op(inputs), grads;
  for (const at::Tensor& y : outputs)
    grads.push_back(drawn(y.sizes(), 2, "dy").to(c10::kBFloat16).to(y.options()));
  Tensors all = torch::autograd::grad(outputs, inputs, grads, {}, false, /*allow_unused=*/true);
  all.insert(all.end(), outputs.begin(), outputs.end());
  return all;
}

void expect_twins(const GpuOp& op, const Tensors& inputs, const std::string& what) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16}) {
    const Tensors got = with_gradients_of(op, on_device(inputs, dtype, {c10::kCUDA, 0}, dtype));
    const Tensors wanted = with_gradients_of(op, on_device(inputs, dtype, c10::kCPU, c10::kDouble));
    const double limit = dtype == c10::kDouble ? 1e-12 : dtype == c10::kFloat ? 1e-5 : 1e-2;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(got[i].defined(), wanted[i].defined()) << what << " " << i;
      if (!got[i].defined() || got[i].numel() == 0) continue;
      const at::Tensor host = got[i].to(c10::kCPU).to(c10::kDouble);
      EXPECT_LE(host.sub(wanted[i]).norm().item<double>(), limit * wanted[i].norm().item<double>())
          << what << " " << dtype << " result " << i;
    }
  }
}

TEST_F(OnGpu, ActivationsEqualTheirCpuTwins) {
  for (const Activation kind : {Activation::gelu, Activation::gelu_tanh, Activation::swiglu})
    for (const auto& shape : {std::vector<int64_t>{3, 50, 72}, {1, 1}, {7, 33}, {0, 8}}) {
      const GpuOp op = [=](const Tensors& x) {
        return Tensors{
            kernels::activated({kind, x[0], kind == Activation::swiglu ? x[1] : at::Tensor()})};
      };
      expect_twins(op, {drawn(shape, 1, "x").mul(3), drawn(shape, 1, "up")}, "activation");
      const GpuOp parts = [=](const Tensors& x) {  // rows that lie apart
        const int64_t half = x[0].size(-1) / 2;
        return Tensors{kernels::activated(
            {kind, x[0].narrow(-1, 0, half),
             kind == Activation::swiglu ? x[0].narrow(-1, half, half) : at::Tensor()})};
      };
      if (shape.back() > 1) expect_twins(parts, {drawn(shape, 1, "x")}, "parts");
    }
}

TEST_F(OnGpu, LinearLayersWithActivationsEqualTheirCpuTwins) {
  for (const Activation kind :
       {Activation::none, Activation::gelu, Activation::gelu_tanh, Activation::swiglu}) {
    const GpuOp op = [=](const Tensors& x) {
      return kernels::linears({kind, x[0], kind == Activation::swiglu ? x[1] : at::Tensor()},
                              {{x[2], x[3]}, {x[4].t()}});
    };
    expect_twins(op,
                 {drawn({2, 33, 72}, 1, "x"), drawn({2, 33, 72}, 1, "up"), drawn({40, 72}, 1, "w"),
                  drawn({40}, 1, "b"), drawn({72, 24}, 1, "v")},
                 "linears");
  }
}

TEST_F(OnGpu, GradientsOfBiasesEqualTheirCpuTwins) {
  for (const auto& [rows, width] :
       {std::pair<int64_t, int64_t>{1, 1}, {5000, 72}, {70, 1000}, {33, 7}, {0, 8}}) {
    const GpuOp op = [](const Tensors& x) { return kernels::linears(x[0], {{x[1], x[2]}}); };
    expect_twins(op, {drawn({rows, 8}, 1, "x"), drawn({width, 8}, 1, "w"), drawn({width}, 1, "b")},
                 "bias");
  }
}

TEST_F(OnGpu, Fp32ParametersHaveGradientsThatAreNotRounded) {
  const at::Tensor x = drawn({512, 64}, 1, "x").to(gpu()).to(c10::kBFloat16).requires_grad_();
  const at::Tensor w = drawn({48, 64}, 1, "w").to(gpu()).to(c10::kFloat).requires_grad_();
  const at::Tensor v = drawn({32, 64}, 1, "v").to(gpu()).to(c10::kFloat).requires_grad_();
  const Tensors y = kernels::linears(x, {{w}, {v}});
  EXPECT_TRUE(y[0].is_alias_of(y[1]));
  const at::Tensor dy = drawn({512, 48}, 2, "dy").to(gpu()).to(c10::kBFloat16);
  const at::Tensor got = torch::autograd::grad({y[0]}, {w}, {dy})[0];
  const at::Tensor exact = dy.to(c10::kDouble).t().mm(x.detach().to(c10::kDouble));
  EXPECT_EQ(got.scalar_type(), c10::kFloat);
  EXPECT_LT(got.to(c10::kDouble).sub(exact).norm().item<double>(),
            1e-5 * exact.norm().item<double>());
}

TEST_F(OnGpu, RotaryPositionsEqualTheirCpuTwins) {
  for (const int64_t half : {32, 5}) {
    const at::Tensor angle = drawn({9, half}, 1, "angle");
    const GpuOp op = [=](const Tensors& x) {
      const kernels::Turn turn = {angle.cos().to(x[0].device()), angle.sin().to(x[0].device())};
      const int64_t width = 2 * half;
      const auto heads = [&](int64_t first, int64_t count) {
        return x[0].narrow(-1, first * width, count * width).unflatten(-1, {count, width});
      };
      const auto [q, k] = kernels::rotary(heads(0, 11), heads(11, 2), turn);
      return Tensors{q, k};
    };
    expect_twins(op, {drawn({2, 9, 13 * 2 * half}, 1, "x")}, "rotary");
  }
}

TEST_F(OnGpu, Fp8CodesEqualTheirCpuTwins) {
  const at::Tensor a = drawn({96, 160}, 1, "a").to(c10::kBFloat16),
                   b = drawn({96, 48}, 1, "b").to(c10::kBFloat16);
  for (const bool e5m2 : {false, true}) {
    const kernels::CodedOptions options = {.dim = 1, .e5m2 = e5m2, .turned = true};
    const auto host = kernels::coded({a, b}, options),
               there = kernels::coded({a.to(gpu()), b.to(gpu())}, options);
    const auto far = [](const at::Tensor& x, const at::Tensor& y) {
      return x.to(c10::kCPU).to(c10::kFloat).sub(y.to(c10::kFloat)).norm().item<double>() /
             y.to(c10::kFloat).norm().item<double>();
    };
    EXPECT_LT(far(there.scale, host.scale), 1e-6);
    EXPECT_LT(far(there.plain, host.plain), 1e-2);  // a tie may fall either way
    EXPECT_LT(far(there.turned, host.turned), 1e-2);
  }
}

TEST_F(OnGpu, Fp8LayersEqualTheirCpuTwins) {
  for (const Fp8 how : {Fp8::tensor, Fp8::row})
    for (const Activation kind : {Activation::none, Activation::gelu, Activation::swiglu}) {
      const auto run = [&](c10::Device device) {
        const Tensors in = on_device({drawn({2, 64, 96}, 1, "x"), drawn({2, 64, 96}, 1, "up"),
                                      drawn({48, 96}, 1, "w"), drawn({96, 32}, 1, "v")},
                                     c10::kBFloat16, device, c10::kBFloat16);
        return with_gradients_of(
            [&](const Tensors& x) {
              return kernels::linears(
                  {kind, x[0], kind == Activation::swiglu ? x[1] : at::Tensor()},
                  {{x[2]}, {x[3].t()}}, {.fp8 = how});
            },
            in);
      };
      const Tensors got = run(gpu()), wanted = run(c10::kCPU);
      for (size_t i = 0; i < got.size(); ++i) {
        if (!wanted[i].defined()) continue;
        const at::Tensor b = wanted[i].to(c10::kDouble);
        EXPECT_LT(got[i].to(c10::kCPU).to(c10::kDouble).sub(b).norm().item<double>(),
                  2e-2 * b.norm().item<double>())
            << static_cast<int>(how) << " " << static_cast<int>(kind) << " result " << i;
      }
    }
}

}  // namespace
}  // namespace braid
