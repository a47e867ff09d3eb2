// SPDX-License-Identifier: BSD-3-Clause
// 8-bit floats: codes against decoded values, layers against those of bf16.
#include "braid/kernels/fp8.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/linear.h"
#include "support/drawn.h"
#include "support/expect.h"

namespace braid::kernels {
namespace {

using test::drawn;
using Tensors = std::vector<at::Tensor>;

double off_by(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor wanted = b.to(c10::kDouble);
  return a.to(c10::kDouble).sub(wanted).norm().item<double>() / wanted.norm().item<double>();
}

at::Tensor decoded(const at::Tensor& codes, const at::Tensor& scale) {
  return codes.to(c10::kFloat).mul(scale);
}

TEST(Fp8, CodesAreTheNearestOfTheirScale) {
  const at::Tensor x = drawn({32, 48}, 1, "x").to(c10::kBFloat16);
  const Coded four = coded({x}, {.turned = true}), five = coded({x}, {.e5m2 = true});
  EXPECT_LT(off_by(decoded(four.plain, four.scale), x), 0.03);  // 3 bits of fraction
  EXPECT_LT(off_by(decoded(five.plain, five.scale), x), 0.06);  // 2 bits
  EXPECT_TRUE(four.plain.to(c10::kFloat).equal(four.turned.t().to(c10::kFloat)));
  EXPECT_EQ(four.plain.to(c10::kFloat).abs().max().item<double>(), 448);
  EXPECT_EQ(five.plain.to(c10::kFloat).abs().max().item<double>(), 57344);
}

TEST(Fp8, PartsShareAScaleAndStandSideBySide) {
  const at::Tensor a = drawn({16, 32}, 1, "a"), b = drawn({16, 16}, 1, "b").mul(4);
  const Coded both = coded({a, b}, {.dim = 1, .turned = true});
  const at::Tensor whole = decoded(both.plain, both.scale);
  EXPECT_LT(off_by(whole.narrow(1, 32, 16), b), 0.03);
  EXPECT_LT(off_by(decoded(both.turned, both.scale).t(), whole), 1e-12);
  const Coded below = coded({a, a.mul(2)}, {.turned = true});
  EXPECT_EQ(below.plain.sizes(), at::IntArrayRef({32, 32}));
  EXPECT_LT(off_by(decoded(below.plain, below.scale).narrow(0, 16, 16), a.mul(2)), 0.03);
  EXPECT_TRUE(below.plain.to(c10::kFloat).equal(below.turned.t().to(c10::kFloat)));
}

TEST(Fp8, RowsOfPartsAreThoseOfEachBelowEachOther) {
  const at::Tensor a = drawn({16, 32}, 1, "a"), b = drawn({48, 32}, 1, "b").to(c10::kBFloat16);
  const Coded both = coded_rows({a, b}), one = coded_rows({a}), other = coded_rows({b});
  EXPECT_TRUE(both.scale.equal(at::cat({one.scale, other.scale})));
  EXPECT_TRUE(both.plain.to(c10::kFloat)
                  .equal(at::cat({one.plain.to(c10::kFloat), other.plain.to(c10::kFloat)})));
}

// One product, whose parts are what each layer gives by itself, also if not all have a bias.
TEST(Fp8, LayersOfOneInputAreOneProduct) {
  const at::Tensor x = drawn({2, 16, 64}, 1, "x").to(c10::kBFloat16);
  std::vector<LinearWeights> layers;
  for (const int64_t out : {32, 16, 48})
    layers.push_back({drawn({out, 64}, 1, "w"), out == 16 ? at::Tensor() : drawn({out}, 1, "b")});
  const Tensors all = linears(x, layers, {.fp8 = Fp8::row});
  for (size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor alone = linears(x, {layers[i]}, {.fp8 = Fp8::row})[0];
    EXPECT_LT(off_by(all[i], alone), 1e-4) << i;
    EXPECT_TRUE(all[i].is_alias_of(all[0])) << i;
  }
}

TEST(Fp8, ZerosAndOneLargeRow) {
  const at::Tensor zeros = at::zeros({16, 16}, c10::kBFloat16);
  const Coded none = coded({zeros});
  EXPECT_EQ(decoded(none.plain, none.scale).abs().max().item<double>(), 0);
  at::Tensor x = drawn({16, 64}, 1, "x");
  x.select(0, 3).mul_(1e6);
  EXPECT_GT(off_by(decoded(coded({x}).plain, coded({x}).scale).select(0, 0), x.select(0, 0)), 0.5);
  const Coded rows = coded_rows({x});
  EXPECT_LT(off_by(decoded(rows.plain, rows.scale).select(0, 0), x.select(0, 0)), 0.03);
}

// Gradients of tokens that a model knows well.
TEST(Fp8, SmallGradientsKeepTheirBits) {
  const at::Tensor x = drawn({16, 64}, 1, "x");
  for (const double size : {1e-9, 1e-14, 1e-20}) {
    const at::Tensor small = x.mul(size).to(c10::kBFloat16);
    const Coded rows = coded_rows({small}), whole = coded({small}, {.e5m2 = true});
    EXPECT_LT(off_by(decoded(rows.plain, rows.scale), small), 0.03) << size;
    EXPECT_LT(off_by(decoded(whole.plain, whole.scale), small), 0.06) << size;
  }
}

// Two operands rounded to 3 bits of fraction give 3.7 %, with one of 2 bits 5.8 %.
TEST(Fp8, ErrorsOfLongProductsAreThoseOfRounding) {
  const at::Tensor x = drawn({64, 4096}, 1, "x").to(c10::kBFloat16),
                   w = drawn({48, 4096}, 1, "w").to(c10::kBFloat16),
                   dy = drawn({64, 48}, 1, "dy").mul(1e-12).to(c10::kBFloat16);
  const Tensors wanted = {x.to(c10::kDouble).mm(w.to(c10::kDouble).t()),
                          dy.to(c10::kDouble).mm(w.to(c10::kDouble)),
                          dy.to(c10::kDouble).t().mm(x.to(c10::kDouble))};
  for (const Fp8 how : {Fp8::tensor, Fp8::row}) {
    const at::Tensor a = x.detach().clone().requires_grad_(),
                     b = w.detach().clone().requires_grad_();
    const Tensors y = linears(a, {{b}}, {.fp8 = how});
    const Tensors grads = torch::autograd::grad(y, {a, b}, {dy});
    EXPECT_LT(off_by(y[0], wanted[0]), 0.04);
    EXPECT_LT(off_by(grads[0], wanted[1]), how == Fp8::row ? 0.04 : 0.065);
    EXPECT_LT(off_by(grads[1], wanted[2]), how == Fp8::row ? 0.005 : 0.065);
  }
}

// A layer in fp8 and in bf16: outputs and gradients of x, weights and biases.
Tensors layer_results(Fp8 how, Activation kind, bool stored_in_out, c10::ScalarType param) {
  const auto leaf = [](const at::Tensor& x, c10::ScalarType dtype) {
    return x.to(dtype).detach().requires_grad_();
  };
  const at::Tensor x = leaf(drawn({2, 16, 64}, 1, "x"), c10::kBFloat16),
                   up = leaf(drawn({2, 16, 64}, 1, "up"), c10::kBFloat16);
  Tensors in = {x, up};
  std::vector<LinearWeights> layers;
  for (const int64_t out : {32, 48}) {
    const at::Tensor w = leaf(
        drawn(stored_in_out ? at::IntArrayRef{64, out} : at::IntArrayRef{out, 64}, 1, "w"), param);
    const at::Tensor b = leaf(drawn({out}, 1, "b"), param);
    in.insert(in.end(), {w, b});
    layers.push_back({stored_in_out ? w.t() : w, b});
  }
  const bool gated = kind == Activation::swiglu;
  Tensors y = linears({kind, x, gated ? up : at::Tensor()}, layers, {.fp8 = how}), grads;
  for (const at::Tensor& each : y) grads.push_back(drawn(each.sizes(), 2, "dy").to(c10::kBFloat16));
  Tensors all = torch::autograd::grad(y, in, grads, {}, false, /*allow_unused=*/true);
  all.insert(all.end(), y.begin(), y.end());
  return all;
}

TEST(Fp8, LayersAndTheirGradientsAreNearThoseOfBf16) {
  for (const Fp8 how : {Fp8::tensor, Fp8::row})
    for (const Activation kind : {Activation::none, Activation::gelu, Activation::swiglu})
      for (const bool stored_in_out : {false, true})
        for (const auto param : {c10::kFloat, c10::kBFloat16}) {
          const Tensors got = layer_results(how, kind, stored_in_out, param),
                        wanted = layer_results(Fp8::off, kind, stored_in_out, param);
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_EQ(got[i].defined(), wanted[i].defined()) << i;
            if (!got[i].defined()) continue;
            EXPECT_EQ(got[i].scalar_type(), wanted[i].scalar_type()) << i;
            EXPECT_EQ(got[i].sizes(), wanted[i].sizes()) << i;
            EXPECT_LT(off_by(got[i], wanted[i]), 0.09) << i;
          }
        }
}

TEST(Fp8, TokensThatAreNoMultipleOf16AreRefusedInTraining) {
  const at::Tensor x = drawn({10, 32}, 1, "x").to(c10::kBFloat16).requires_grad_();
  const at::Tensor w = drawn({16, 32}, 1, "w").to(c10::kBFloat16);
  const std::string error = test::error_of([&] { linears(x, {{w}}, {.fp8 = Fp8::tensor}); });
  EXPECT_TRUE(test::contains(error, "10 tokens")) << error;
  EXPECT_NO_THROW(linears(x.detach(), {{w}}, {.fp8 = Fp8::tensor}));
  EXPECT_NO_THROW(linears(x, {{w}}, {.fp8 = Fp8::row})[0].sum().backward());
}

}  // namespace
}  // namespace braid::kernels
