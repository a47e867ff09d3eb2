// SPDX-License-Identifier: BSD-3-Clause
// linears against the same layers composed of plain operators: values, gradients, what is kept.
#include "braid/kernels/linear.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;
using Tensors = std::vector<at::Tensor>;

at::Tensor composed(Activation kind, const at::Tensor& x, const at::Tensor& up) {
  if (kind == Activation::none) return x;
  if (kind == Activation::swiglu) return at::silu(x).mul(up);
  return at::gelu(x, kind == Activation::gelu ? "none" : "tanh");
}

struct LinearsCase {
  Activation kind = Activation::none;
  std::vector<int64_t> shape = {3, 4, 5};
  size_t layers = 1;
  bool bias = true;
  c10::ScalarType param = c10::kDouble, compute = c10::kDouble;
};

// x, up, then weight and bias of each layer: leaves that want gradients.
Tensors leaves_of(const LinearsCase& c) {
  Tensors all = {drawn(c.shape, 1, "x").to(c.compute), drawn(c.shape, 1, "up").to(c.compute)};
  for (size_t i = 0; i < c.layers; ++i) {
    const auto out = static_cast<int64_t>(6 + i);
    all.push_back(drawn({out, c.shape.back()}, 1, "w" + std::to_string(i)).to(c.param));
    all.push_back(drawn({out}, 1, "b" + std::to_string(i)).to(c.param));
  }
  for (at::Tensor& each : all) each = each.detach().requires_grad_();
  return all;
}

Tensors outputs_of(const LinearsCase& c, const Tensors& in, bool fused) {
  std::vector<LinearWeights> layers;
  for (size_t i = 0; i < c.layers; ++i)
    layers.push_back({in[2 + 2 * i], c.bias ? in[3 + 2 * i] : at::Tensor()});
  if (fused)
    return linears({c.kind, in[0], c.kind == Activation::swiglu ? in[1] : at::Tensor()}, layers);
  Tensors outputs;
  const at::Tensor value = composed(c.kind, in[0], in[1]);
  for (const auto& [w, b] : layers)
    outputs.push_back(b.defined() ? at::linear(value, w.to(c.compute), b.to(c.compute))
                                  : at::linear(value, w.to(c.compute)));
  return outputs;
}

Tensors with_gradients(const LinearsCase& c, bool fused) {
  const Tensors in = leaves_of(c);
  Tensors outputs = outputs_of(c, in, fused), grads;
  for (const at::Tensor& y : outputs)
    grads.push_back(drawn(y.sizes(), 2, "dy").to(y.scalar_type()));
  Tensors all = torch::autograd::grad(outputs, in, grads, {}, false, /*allow_unused=*/true);
  all.insert(all.end(), outputs.begin(), outputs.end());
  return all;
}

void expect_near(const LinearsCase& c, double relative) {
  const Tensors got = with_gradients(c, true), wanted = with_gradients(c, false);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].defined(), wanted[i].defined()) << i;
    if (!got[i].defined()) continue;
    EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << i;
    const at::Tensor a = got[i].to(c10::kDouble), b = wanted[i].to(c10::kDouble);
    EXPECT_LE(a.sub(b).norm().item<double>(), relative * b.norm().item<double>()) << i;
  }
}

constexpr std::array kinds = {Activation::none, Activation::gelu, Activation::gelu_tanh,
                              Activation::swiglu};

TEST(Linears, EqualTheComposedLayers) {
  for (const Activation kind : kinds)
    for (const size_t layers : {1, 3})
      for (const bool bias : {true, false}) {
        expect_near({.kind = kind, .layers = layers, .bias = bias}, 1e-14);
        expect_near({.kind = kind, .shape = {7, 5}, .layers = layers, .bias = bias}, 1e-14);
        expect_near({.kind = kind, .shape = {2, 1, 3, 5}, .layers = layers, .bias = bias}, 1e-14);
      }
}

TEST(Linears, EmptyAndSingleRows) {
  expect_near({.kind = Activation::gelu, .shape = {0, 5}}, 0);
  expect_near({.kind = Activation::swiglu, .shape = {1, 1}, .layers = 2}, 1e-14);
}

TEST(Linears, CastWeightsAreOneProductAndGradientsComeInTheParametersDtype) {
  for (const Activation kind : kinds)
    for (const size_t layers : {1, 3})
      expect_near({.kind = kind,
                   .shape = {3, 4, 16},
                   .layers = layers,
                   .param = c10::kFloat,
                   .compute = c10::kBFloat16},
                  1e-2);
  const LinearsCase c = {.layers = 3, .param = c10::kFloat, .compute = c10::kBFloat16};
  const Tensors y = outputs_of(c, leaves_of(c), true);
  EXPECT_TRUE(y[0].is_alias_of(y[2]));
  EXPECT_EQ(y[1].storage_offset(), 6);
}

// Of bf16 factors the exact sum, where a bf16 result would have 8 bits.
TEST(Linears, GradientsOfFp32ParametersAreNotRounded) {
  const LinearsCase c = {.shape = {64, 16}, .param = c10::kFloat, .compute = c10::kBFloat16};
  const Tensors in = leaves_of(c);
  const at::Tensor y = outputs_of(c, in, true)[0];
  const at::Tensor dy = drawn(y.sizes(), 2, "dy").to(y.scalar_type());
  y.backward(dy);
  const at::Tensor exact = dy.to(c10::kDouble).t().mm(in[0].detach().to(c10::kDouble));
  EXPECT_LT(in[2].grad().to(c10::kDouble).sub(exact).abs().max().item<double>(), 1e-4);
  EXPECT_LT(
      in[3].grad().to(c10::kDouble).sub(dy.to(c10::kDouble).sum(0)).abs().max().item<double>(),
      1e-4);
}

TEST(Linears, TransposedWeightsHaveTransposedGradients) {
  const at::Tensor x = drawn({7, 5}, 1, "x"), w = drawn({5, 6}, 1, "w").requires_grad_();
  linears({Activation::gelu, x}, {{w.t()}})[0].sum().backward();
  const at::Tensor again = w.detach().clone().requires_grad_();
  at::linear(at::gelu(x), again.t()).sum().backward();
  EXPECT_TRUE(w.grad().allclose(again.grad(), 1e-14));
  EXPECT_TRUE(w.grad().is_contiguous());
}

TEST(Linears, AnOutputThatIsNotUsedGivesNoGradient) {
  const LinearsCase c = {.kind = Activation::gelu, .layers = 2};
  const Tensors in = leaves_of(c);
  outputs_of(c, in, true)[1].sum().backward();
  EXPECT_FALSE(in[2].grad().defined());
  EXPECT_TRUE(in[4].grad().defined());
  const Tensors same = leaves_of(c);
  outputs_of(c, same, false)[1].sum().backward();
  EXPECT_TRUE(in[0].grad().allclose(same[0].grad(), 1e-13));
}

TEST(Linears, GradientsSideBySideAreOneProduct) {
  const LinearsCase c = {.layers = 3, .param = c10::kFloat, .compute = c10::kBFloat16};
  const auto back = [&](bool side_by_side) {
    const Tensors in = leaves_of(c);
    const Tensors y = outputs_of(c, in, true);
    const at::Tensor dy = drawn({3, 4, 21}, 2, "dy").to(c10::kBFloat16);
    Tensors grads = {dy.narrow(-1, 0, 6), dy.narrow(-1, 6, 7), dy.narrow(-1, 13, 8)};
    if (!side_by_side)
      for (at::Tensor& grad : grads) grad = grad.clone();
    return torch::autograd::grad(y, {in[0], in[2], in[6]}, grads);
  };
  const auto one = back(true), three = back(false);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_TRUE(one[i].allclose(three[i], i == 0 ? 0.02 : 1e-6, 0.02)) << i;
}

TEST(Linears, GradientsOfBiasesAreSumsOfAllRows) {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{1, 1}, {3000, 65}, {70, 300}}) {
    const at::Tensor b = drawn({width}, 1, "b").requires_grad_();
    const at::Tensor dy = drawn({rows, width}, 2, "dy");
    linears(drawn({rows, 2}, 1, "x"), {{drawn({width, 2}, 1, "w"), b}})[0].backward(dy);
    EXPECT_TRUE(b.grad().allclose(dy.sum(0), 1e-12, 1e-12)) << rows << " x " << width;
  }
}

}  // namespace
}  // namespace braid::kernels
