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
#include "braid/kernels/rotary.h"
#include "braid/kernels/swiglu.h"

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
    EXPECT_LT(error, 1e-13 * wanted[i].norm().item<double>()) << "result " << i;
  }
}

TEST(Rotary, EqualsTheFormula) {
  const at::Tensor angle = drawn({5, 4}, "angle");
  const Op fused = [&](auto& x) { return rotary(x[0], angle.cos(), angle.sin()); };
  const Op composed = [&](auto& x) {
    const at::Tensor both = at::cat({angle, angle}, -1).unsqueeze(1);
    const at::Tensor half = at::cat({x[0].narrow(-1, 4, 4).neg(), x[0].narrow(-1, 0, 4)}, -1);
    return x[0].mul(both.cos()).add(half.mul(both.sin()));
  };
  expect_same(fused, composed, {drawn({2, 5, 3, 8}, "x")});
  expect_same(fused, composed, {drawn({2, 5, 3, 16}, "wide").narrow(-1, 8, 8)});  // strided
}

TEST(Swiglu, EqualsTheFormula) {
  const Op fused = [](auto& x) { return swiglu(x[0], x[1]); };
  const Op composed = [](auto& x) { return at::silu(x[0]).mul(x[1]); };
  expect_same(fused, composed, {drawn({3, 7}, "gate"), drawn({3, 7}, "up")});
}

}  // namespace
}  // namespace braid::kernels
