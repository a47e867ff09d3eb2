// SPDX-License-Identifier: BSD-3-Clause
// rotary and swiglu against the same formulas composed of plain operators, values and
// gradients.
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/silu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "braid/core/rng.h"
#include "braid/kernels/activation.h"
#include "braid/kernels/rotary.h"

namespace braid::kernels {
namespace {

using Op = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

at::Tensor drawn(at::IntArrayRef shape, std::string_view name,
                 c10::ScalarType dtype = c10::kDouble) {
  at::Tensor values = at::empty(shape, dtype);
  fill_normal(values, random_key(7, name));
  return values;
}

// Output of `op`, then the gradient of each input for a fixed gradient of the output.
std::vector<at::Tensor> results(const Op& op, std::vector<at::Tensor> inputs) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  const at::Tensor output = op(inputs);
  const at::Tensor grad = drawn(output.sizes(), "grad", output.scalar_type());
  std::vector<at::Tensor> all = torch::autograd::grad({output}, inputs, {grad});
  all.insert(all.begin(), output.detach());
  return all;
}

void expect_same(const Op& fused, const Op& composed, const std::vector<at::Tensor>& inputs) {
  const auto got = results(fused, inputs), wanted = results(composed, inputs);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double error = got[i].sub(wanted[i]).norm().item<double>();
    EXPECT_LE(error, 1e-13 * wanted[i].norm().item<double>()) << "result " << i;
  }
}

TEST(Rotary, EqualsTheFormula) {
  const at::Tensor angle = drawn({5, 4}, "angle");
  const auto turned = [&](const at::Tensor& x) {
    const at::Tensor both = at::cat({angle, angle}, -1).unsqueeze(1);
    const at::Tensor half = at::cat({x.narrow(-1, 4, 4).neg(), x.narrow(-1, 0, 4)}, -1);
    return x.mul(both.cos()).add(half.mul(both.sin()));
  };
  const Op fused = [&](auto& x) {
    const auto [q, k] = rotary(x[0], x[1], {angle.cos(), angle.sin()});
    return at::cat({q, k}, 2);
  };
  const Op composed = [&](auto& x) { return at::cat({turned(x[0]), turned(x[1])}, 2); };
  expect_same(fused, composed, {drawn({2, 5, 3, 8}, "q"), drawn({2, 5, 1, 8}, "k")});
  const at::Tensor wide = drawn({2, 5, 3, 16}, "wide");  // parts of one product
  expect_same(fused, composed, {wide.narrow(-1, 8, 8), wide.narrow(-1, 0, 8)});
  expect_same(fused, composed,
              {drawn({2, 3, 5, 8}, "q").transpose(1, 2), drawn({2, 5, 3, 8}, "k")});
  expect_same(fused, composed, {drawn({0, 5, 3, 8}, "q"), drawn({0, 5, 1, 8}, "k")});
}

TEST(Swiglu, EqualsTheFormula) {
  const Op fused = [](auto& x) { return activated({Activation::swiglu, x[0], x[1]}); };
  const Op composed = [](auto& x) { return at::silu(x[0]).mul(x[1]); };
  expect_same(fused, composed, {drawn({3, 7}, "gate"), drawn({3, 7}, "up")});
}

}  // namespace
}  // namespace braid::kernels
