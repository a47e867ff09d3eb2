// SPDX-License-Identifier: BSD-3-Clause
// A layer that gives the activation behind it on the way, against the two written one after the
// other.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;
using Tensors = std::vector<at::Tensor>;

std::tuple<at::Tensor, at::Tensor> by_op(const at::Tensor& x, const at::Tensor& w,
                                         const at::Tensor& b) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow("braid::linear_gelu", "")
      .typed<std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, const at::Tensor&,
                                                const at::Tensor&)>()
      .call(x, w, b);
}

// x, then weight and bias of both layers; weights stored [in, out] if `turned`.
Tensors two_layers(c10::ScalarType compute, c10::ScalarType param, bool turned) {
  const auto weight = [&](int64_t out, int64_t in, const char* name) {
    return (turned ? drawn({in, out}, 1, name) : drawn({out, in}, 1, name)).to(param);
  };
  Tensors all = {drawn({2, 3, 8}, 1, "x").to(compute), weight(16, 8, "w1"),
                 drawn({16}, 1, "b1").to(param), weight(8, 16, "w2"),
                 drawn({8}, 1, "b2").to(param)};
  for (at::Tensor& each : all) each = each.detach().requires_grad_();
  return all;
}

LinearWeights layer_of(const at::Tensor& w, const at::Tensor& b, bool turned) {
  return {turned ? w.t() : w, b};
}

Tensors results_of(const Tensors& in, bool turned, bool on_the_way) {
  const LinearWeights first = layer_of(in[1], in[2], turned);
  const Activated h = on_the_way ? linear_to(in[0], first, Activation::gelu_tanh)
                                 : Activated(Activation::gelu_tanh, linears(in[0], {first})[0]);
  const at::Tensor y = linears(h, {layer_of(in[3], in[4], turned)})[0];
  Tensors all = torch::autograd::grad({y}, in, {drawn(y.sizes(), 2, "dy").to(y.scalar_type())});
  all.push_back(h.x);
  all.push_back(y);
  return all;
}

TEST(LinearGelu, IsTheFormula) {
  const at::Tensor x = drawn({7, 5}, 1, "x"), b = drawn({6}, 1, "b");
  for (const at::Tensor& w : {drawn({6, 5}, 1, "w"), drawn({5, 6}, 1, "w").t()}) {
    const auto [h, value] = by_op(x, w, b);
    EXPECT_TRUE(h.allclose(x.mm(w.t()).add(b), 1e-14, 1e-14));
    const at::Tensor inner = h.add(h.pow(3).mul(0.044715)).mul(0.7978845608028654);
    EXPECT_TRUE(value.allclose(h.mul(0.5).mul(inner.tanh().add(1)), 1e-13, 1e-14));
    EXPECT_FALSE(value.is_alias_of(h));
  }
}

TEST(LinearGelu, GradientsOfTwoLayersAreThoseWithoutIt) {
  for (const bool turned : {false, true})
    for (const auto param : {c10::kBFloat16, c10::kFloat}) {
      const Tensors in = two_layers(c10::kBFloat16, param, turned);
      const Tensors got = results_of(in, turned, true), wanted = results_of(in, turned, false);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(got[i].equal(wanted[i])) << i;
    }
}

TEST(LinearGelu, TheValueRidesAlongAndIsNotKept) {
  const Tensors in = two_layers(c10::kBFloat16, c10::kFloat, true);
  const Activated h = linear_to(in[0], {in[1].t(), in[2]}, Activation::gelu_tanh);
  ASSERT_TRUE(h.value.defined());
  EXPECT_EQ(h.value.sizes(), h.x.sizes());
  EXPECT_TRUE(h.value.equal(activation_value({Activation::gelu_tanh, h.x.detach()})));
  EXPECT_TRUE(h.x.requires_grad());
  EXPECT_FALSE(h.value.requires_grad());
  const size_t holders = h.value.use_count();
  const at::Tensor once = linears(h, {{in[3].t(), in[4]}})[0],
                   twice = linears(h, {{in[3].t(), in[4]}})[0];
  EXPECT_TRUE(once.equal(twice));
  EXPECT_EQ(h.value.use_count(), holders);
  const Tensors both = torch::autograd::grad({once.add(twice).sum()}, {in[1]}),
                one = torch::autograd::grad(
                    {linears({Activation::gelu_tanh, linears(in[0], {{in[1].t(), in[2]}})[0]},
                             {{in[3].t(), in[4]}})[0]
                         .sum()},
                    {in[1]});
  EXPECT_TRUE(both[0].allclose(one[0].mul(2), 2e-2, 1e-2));
  EXPECT_TRUE(activated(h).requires_grad());
}

TEST(LinearGelu, WithoutAGraph) {
  const Tensors in = two_layers(c10::kBFloat16, c10::kFloat, false);
  const at::NoGradGuard no_grad;
  const Activated h = linear_to(in[0], {in[1], in[2]}, Activation::gelu_tanh);
  EXPECT_TRUE(h.value.defined());
  EXPECT_FALSE(h.x.requires_grad());
  const at::Tensor y = linears(h, {{in[3], in[4]}})[0];
  EXPECT_TRUE(y.equal(linears({Activation::gelu_tanh, h.x}, {{in[3], in[4]}})[0]));
}

TEST(LinearGelu, OnlyWhereOneProductGivesBoth) {
  const at::Tensor x = drawn({16, 32}, 1, "x"), w = drawn({48, 32}, 1, "w"),
                   b = drawn({48}, 1, "b");
  const at::Tensor narrow = x.to(c10::kBFloat16);
  EXPECT_TRUE(linear_to(narrow, {w, b}, Activation::gelu_tanh).value.defined());
  EXPECT_FALSE(linear_to(x, {w, b}, Activation::gelu_tanh).value.defined());
  EXPECT_FALSE(linear_to(narrow, {w}, Activation::gelu_tanh).value.defined());
  EXPECT_FALSE(linear_to(narrow, {w, b}, Activation::gelu).value.defined());
  const Activated coded = linear_to(narrow, {w.to(c10::kFloat), b.to(c10::kFloat)},
                                    Activation::gelu_tanh, {.fp8 = Fp8::tensor});
  EXPECT_FALSE(coded.value.defined());
  EXPECT_TRUE(linear_to(x, {w, b}, Activation::gelu_tanh).x.equal(linears(x, {{w, b}})[0]));
}

}  // namespace
}  // namespace braid::kernels
