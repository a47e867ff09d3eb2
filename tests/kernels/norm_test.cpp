// SPDX-License-Identifier: BSD-3-Clause
// norm_rows and add_norm_rows against the same formulas composed of plain operators, values and
// gradients; dtypes, shapes at the edges.
#include <ATen/ops/empty.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/norm.h"

namespace braid::kernels {
namespace {

using Many = std::vector<at::Tensor>;
using NormCall = std::function<Many(const Many&)>;

at::Tensor norm_input(at::IntArrayRef shape, std::string_view name,
                      c10::ScalarType dtype = c10::kDouble) {
  at::Tensor values = at::empty(shape, dtype);
  fill_normal(values, random_key(7, name));
  return values;
}

// Results, then the gradients of all inputs for fixed gradients of the results.
Many with_gradients(const NormCall& call, Many inputs) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  Many results = call(inputs), grads;
  for (const at::Tensor& result : results)
    grads.push_back(norm_input(result.sizes(), "grad", result.scalar_type()));
  const Many of_inputs = torch::autograd::grad(results, inputs, grads);
  for (at::Tensor& result : results) result = result.detach();
  results.insert(results.end(), of_inputs.begin(), of_inputs.end());
  return results;
}

double distance(const at::Tensor& got, const at::Tensor& wanted) {
  const at::Tensor exact = wanted.to(c10::kDouble);
  return (got.to(c10::kDouble).sub(exact).norm().item<double>() + 1e-300) /
         (exact.norm().item<double>() + 1e-300);
}

void expect_near(const NormCall& got, const NormCall& wanted, const Many& inputs,
                 double relative = 1e-12) {
  const Many a = with_gradients(got, inputs), b = with_gradients(wanted, inputs);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].sizes(), b[i].sizes()) << "result " << i;
    if (b[i].norm().item<double>() > 0) {
      EXPECT_LT(distance(a[i], b[i]), relative) << "result " << i;
    }
  }
}

at::Tensor composed(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor level = bias.defined() ? x.sub(x.mean(-1, true)) : x;
  const at::Tensor y = level.mul(level.square().mean(-1, true).add(1e-3).rsqrt()).mul(weight);
  return bias.defined() ? y.add(bias) : y;
}

constexpr NormOptions wide_eps = {.eps = 1e-3};

TEST(Norm, EqualsTheFormula) {
  const NormCall layer = [](const Many& x) {
    return Many{norm_rows(x[0], {x[1], x[2]}, wide_eps)};
  };
  const NormCall rms = [](const Many& x) { return Many{norm_rows(x[0], {x[1]}, wide_eps)}; };
  const NormCall layer_by_ops = [](const Many& x) { return Many{composed(x[0], x[1], x[2])}; };
  const NormCall rms_by_ops = [](const Many& x) { return Many{composed(x[0], x[1], {})}; };
  for (const int64_t width : {2, 8, 13, 67}) {
    const at::Tensor w = norm_input({width}, "w"), b = norm_input({width}, "b");
    for (const at::Tensor& x : {norm_input({2, 5, width}, "x"), norm_input({1, width}, "one"),
                                norm_input({width, 3}, "t").t()}) {
      expect_near(layer, layer_by_ops, {x, w, b});
      expect_near(rms, rms_by_ops, {x, w});
    }
  }
}

TEST(Norm, OfASumEqualsTheFormula) {
  const NormCall layer = [](const Many& x) {
    const NormOfSum both = add_norm_rows(x[0], x[1], {x[2], x[3]}, wide_eps);
    return Many{both.sum, both.y};
  };
  const NormCall by_ops = [](const Many& x) {
    const at::Tensor sum = x[0].add(x[1]);
    return Many{sum, composed(sum, x[2], x[3])};
  };
  const Many weights = {norm_input({9}, "w"), norm_input({9}, "b")};
  for (const at::Tensor& x : {norm_input({4, 3, 9}, "x"), norm_input({9, 5}, "t").t()})
    expect_near(layer, by_ops, {x, norm_input(x.sizes(), "branch"), weights[0], weights[1]});
}

TEST(Norm, DropsSamplesOfTheBranch) {
  const Drop drop = {.rate = 0.4, .key = {5}, .first_sample = 2};
  const auto call = [&](const Many& x, const Branch& branch, c10::ScalarType dtype) {
    const NormOfSum both = add_norm_rows(x[0], branch, {x[2], x[3]}, {.eps = 1e-3, .dtype = dtype});
    return Many{both.sum, both.y};
  };
  for (const auto of_branch : {c10::kDouble, c10::kFloat}) {
    const NormCall one = [&](const Many& x) {
      return call(x, drop_branch(x[1].to(of_branch), drop), of_branch);
    };
    const NormCall by_ops = [&](const Many& x) {
      const at::Tensor sum = x[0].add(drop_path(x[1], drop));
      return Many{sum, composed(sum, x[2], x[3])};
    };
    const Many in = {norm_input({6, 2, 9}, "x"), norm_input({6, 2, 9}, "branch"),
                     norm_input({9}, "w"), norm_input({9}, "b")};
    const double near = of_branch == c10::kDouble ? 1e-12 : 1e-6;
    expect_near(one, by_ops, in, near);
    const auto sum_of = [](const NormCall& of) {  // nobody uses y
      return [of](const Many& x) { return Many{of(x)[0].add(x[2].sum()).add(x[3].sum())}; };
    };
    expect_near(sum_of(one), sum_of(by_ops), in, near);
  }
}

TEST(Norm, WithoutABranchPassesXOn) {
  const NormCall rms = [](const Many& x) {
    const NormOfSum both = add_norm_rows(x[0], {}, {x[1]}, wide_eps);
    EXPECT_EQ(both.sum.const_data_ptr(), x[0].const_data_ptr());
    return Many{both.sum.mul(2), both.y};
  };
  const NormCall by_ops = [](const Many& x) { return Many{x[0].mul(2), composed(x[0], x[1], {})}; };
  expect_near(rms, by_ops, {norm_input({4, 3, 9}, "x"), norm_input({9}, "w")});
  expect_near(rms, by_ops, {norm_input({9, 4}, "t").t(), norm_input({9}, "w")});
}

TEST(Norm, OfOneNumberIsItsBias) {
  const at::Tensor w = norm_input({1}, "w"), b = norm_input({1}, "b"), x = norm_input({4, 1}, "x");
  const Many found = with_gradients(
      [](const Many& in) { return Many{norm_rows(in[0], {in[1], in[2]})}; }, {x, w, b});
  EXPECT_EQ(found[0].sub(b).abs().max().item<double>(), 0);
  EXPECT_EQ(found[1].abs().max().item<double>(), 0);
}

TEST(Norm, TakesMixedDtypesAndGivesTheOneAskedFor) {
  const auto types = {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf};
  for (const auto of_x : types)
    for (const auto of_branch : types)
      for (const auto of_weight : types) {
        const Many in = {norm_input({3, 24}, "x", of_x), norm_input({3, 24}, "branch", of_branch),
                         norm_input({24}, "w", of_weight), norm_input({24}, "b", of_weight)};
        const NormCall run = [&](const Many& x) {
          const NormOfSum both = add_norm_rows(x[0], x[1], {x[2], x[3]}, {.dtype = of_branch});
          return Many{both.sum, both.y};
        };
        const Many found = with_gradients(run, in);
        const std::vector<c10::ScalarType> wanted = {of_x,      of_branch, of_x,
                                                     of_branch, of_weight, of_weight};
        for (size_t i = 0; i < found.size(); ++i) EXPECT_EQ(found[i].scalar_type(), wanted[i]);
        const at::Tensor exact = at::layer_norm(found[0].to(c10::kDouble), {24},
                                                in[2].to(c10::kDouble), in[3].to(c10::kDouble));
        EXPECT_LT(distance(found[1], exact), of_branch == c10::kBFloat16 ? 4e-3 : 1e-3);
      }
}

TEST(Norm, RoundsOnceInHalfPrecision) {
  const at::Tensor x = norm_input({4, 64}, "x", c10::kBFloat16),
                   weight = norm_input({64}, "w", c10::kFloat);
  const at::Tensor y = norm_rows(x, {weight}), z = norm_rows(x, {weight}, {.dtype = c10::kFloat});
  const at::Tensor exact = norm_rows(x.to(c10::kDouble), {weight.to(c10::kDouble)});
  EXPECT_EQ(y.scalar_type(), c10::kBFloat16);
  EXPECT_LT(y.to(c10::kDouble).sub(exact).div(exact.abs().add(1e-3)).abs().max().item<double>(),
            1.0 / 256);
  EXPECT_LT(distance(z, exact), 1e-6);
}

TEST(Norm, HoldsUpFarFromZero) {
  const at::Tensor x = norm_input({4, 512}, "x").add(1e4),
                   one = at::zeros({512}, c10::kDouble).add(1);
  const at::Tensor exact = norm_rows(x.to(c10::kFloat).to(c10::kDouble), {one, one});
  const at::Tensor y = norm_rows(x.to(c10::kFloat), {one.to(c10::kFloat), one.to(c10::kFloat)});
  EXPECT_LT(distance(y, exact), 1e-3);  // the mean of fp32 sums, not a difference of squares
}

TEST(Norm, OfNothingIsNothing) {
  const Many found =
      with_gradients([](const Many& x) { return Many{norm_rows(x[0], {x[1], x[2]})}; },
                     {norm_input({0, 8}, "x"), norm_input({8}, "w"), norm_input({8}, "b")});
  EXPECT_EQ(found[0].numel(), 0);
  EXPECT_EQ(found[2].abs().sum().item<double>(), 0);
  EXPECT_EQ(found[3].abs().sum().item<double>(), 0);
}

TEST(Norm, WhoseResultIsNotUsedPassesTheGradientOfTheSum) {
  const at::Tensor x = norm_input({3, 8}, "x").requires_grad_();
  const at::Tensor branch = norm_input({3, 8}, "branch", c10::kFloat).requires_grad_();
  const NormOfSum both = add_norm_rows(x, branch, {norm_input({8}, "w").requires_grad_()});
  const Many grads = torch::autograd::grad({both.sum.sum()}, {x, branch});
  EXPECT_EQ(grads[0].sub(1).abs().max().item<double>(), 0);
  EXPECT_EQ(grads[1].scalar_type(), c10::kFloat);
  const NormOfSum again = add_norm_rows(x, branch, {norm_input({8}, "w")});
  const Many of_y = torch::autograd::grad({again.y.square().sum()}, {x, branch});
  EXPECT_LT(distance(of_y[1], of_y[0]), 1e-6);
}

}  // namespace
}  // namespace braid::kernels
