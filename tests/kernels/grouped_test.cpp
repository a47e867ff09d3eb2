// SPDX-License-Identifier: BSD-3-Clause
// Products by group and moves of rows against the same formulas written out, values and gradients.
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "braid/kernels/grouped.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;
using Op = std::function<at::Tensor(const Tensors&)>;

// Output, then the gradient of each input for a fixed gradient of the output.
Tensors outcome(const Op& op, Tensors inputs) {
  for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
  const at::Tensor output = op(inputs);
  Tensors all =
      torch::autograd::grad({output}, inputs, {test::drawn(output.sizes(), 3, "gradient")});
  all.insert(all.begin(), output.detach());
  return all;
}

void expect_grouped(const Op& mine, const Op& written_out, const Tensors& inputs) {
  const Tensors got = outcome(mine, inputs), wanted = outcome(written_out, inputs);
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_LT(got[i].sub(wanted[i]).abs().max().item<double>(), 1e-13) << "result " << i;
}

at::Tensor ints(std::vector<int64_t> values) { return at::tensor(values, at::kLong); }
at::Tensor offsets_of(std::vector<int64_t> ends) { return ints(std::move(ends)).to(at::kInt); }

TEST(GroupedProduct, MultipliesEachGroupWithItsWeight) {
  const at::Tensor offsets = offsets_of({3, 3, 7});  // the second group has no rows
  const Op grouped = [&](const Tensors& x) {
    return grouped_product(x[0], {.weight = x[1], .offsets = offsets});
  };
  const Op written_out = [](const Tensors& x) {
    return at::cat({x[0].narrow(0, 0, 3).mm(x[1][0]), x[0].narrow(0, 3, 4).mm(x[1][2])});
  };
  const Tensors inputs = {test::drawn({7, 5}, 1, "x"), test::drawn({3, 5, 4}, 1, "w")};
  expect_grouped(grouped, written_out, inputs);
  const Tensors got = outcome(grouped, inputs);
  EXPECT_EQ(got[2][1].abs().max().item<double>(), 0) << "a group without rows has no gradient";
}

TEST(GroupedProduct, MultipliesGroupsOfEqualSizeAtOnce) {
  expect_grouped([](const Tensors& x) { return grouped_product(x[0], {.weight = x[1]}); },
                 [](const Tensors& x) { return at::bmm(x[0], x[1]); },
                 {test::drawn({3, 6, 5}, 1, "x"), test::drawn({3, 5, 4}, 1, "w")});
}

TEST(GroupedProduct, GivesTheGradientsOfWeightsLater) {
  const at::Tensor offsets = offsets_of({2, 7});
  const at::Tensor x = test::drawn({7, 5}, 1, "x").requires_grad_();
  const at::Tensor w = test::drawn({2, 5, 4}, 1, "w").requires_grad_();
  const at::Tensor gradient = test::drawn({7, 4}, 3, "gradient");
  const auto later = std::make_shared<Deferred>();
  later->set_active(true);
  later->open(5);
  grouped_product(x, {.weight = w, .offsets = offsets, .later = later}).backward(gradient);
  EXPECT_FALSE(w.grad().defined());
  ASSERT_TRUE(x.grad().defined());
  later->run(5);
  const Tensors wanted = outcome(
      [&](const Tensors& in) {
        return grouped_product(in[0], {.weight = in[1], .offsets = offsets});
      },
      {x, w});
  EXPECT_TRUE(x.grad().equal(wanted[1]));
  EXPECT_TRUE(w.grad().equal(wanted[2]));
}

// Four tokens with two choices each in five slots: token 1 has one place, token 3 none.
SlotMap some_map() {
  return {.tokens = 4,
          .slots = 5,
          .token = ints({2, 0, 4, 1, 0}),
          .slot = ints({1, 4, 5, 3, 0, 5, 5, 5}).view({4, 2})};
}

at::Tensor to_slots_as_matrix() {  // [slots, tokens]
  at::Tensor matrix = at::zeros({5, 4}, at::kDouble);
  for (const auto& [slot, token] : {std::pair{0, 2}, {1, 0}, {3, 1}, {4, 0}})
    matrix[slot][token].fill_(1);
  return matrix;
}

TEST(Slots, HoldTheTokensOfTheMap) {
  SlotMap any = some_map();
  any.slot = at::Tensor();
  for (const SlotMap& map : {some_map(), any})
    expect_grouped([&](const Tensors& x) { return to_slots(x[0], map); },
                   [](const Tensors& x) { return to_slots_as_matrix().mm(x[0]); },
                   {test::drawn({4, 3}, 1, "x")});
}

TEST(Slots, GiveTokensTheSumByTheirGates) {
  const Op by_choice = [](const Tensors& x) { return from_slots(x[0], x[1], some_map()); };
  const Op written_out = [](const Tensors& x) {
    const at::Tensor &y = x[0], &g = x[1];
    return at::stack({y[1].mul(g[0][0]).add(y[4].mul(g[0][1])), y[3].mul(g[1][1]),
                      y[0].mul(g[2][0]), y[0].mul(0).mul(g[3][0])});
  };
  expect_grouped(by_choice, written_out,
                 {test::drawn({5, 3}, 1, "y"), test::drawn({4, 2}, 1, "g")});

  SlotMap map = some_map();
  map.slot = at::Tensor();
  const Op by_slot = [&](const Tensors& x) { return from_slots(x[0], x[1], map); };
  const Op as_matrix = [](const Tensors& x) {
    return to_slots_as_matrix().t().mm(x[0].mul(x[1].unsqueeze(1)));
  };
  expect_grouped(by_slot, as_matrix, {test::drawn({5, 3}, 1, "y"), test::drawn({5}, 1, "g")});
}

TEST(Slots, DoNotSpreadWhatStandsInNoOnesSlot) {
  at::Tensor y = test::drawn({5, 3}, 1, "y");
  y[4].fill_(NAN);  // the slot that numbers out of range are clamped to
  SlotMap map = some_map();
  map.slot = ints({1, 5, 5, 3, 0, 5, 5, 5}).view({4, 2});
  map.token = ints({2, 0, 4, 1, 4});
  const at::Tensor gates = test::drawn({4, 2}, 1, "g").requires_grad_();
  const at::Tensor out = from_slots(y.requires_grad_(), gates, map);
  out.sum().backward();
  EXPECT_TRUE(out.isfinite().all().item<bool>());
  EXPECT_TRUE(gates.grad().isfinite().all().item<bool>());
  EXPECT_TRUE(y.grad().isfinite().all().item<bool>());
}

TEST(Slots, ReorderRowsAndTheirGradients) {
  const at::Tensor order = ints({2, 0, 1}), inverse = ints({1, 2, 0});
  expect_grouped([&](const Tensors& x) { return reordered(x[0], order, inverse); },
                 [&](const Tensors& x) { return x[0].index_select(0, order); },
                 {test::drawn({3, 2}, 1, "x")});
}

// Without values: what shapes come out, on the meta device.
TEST(GroupedProduct, NeedsNoValues) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  const at::Tensor x = at::empty({7, 5}, meta).requires_grad_();
  const at::Tensor w = at::empty({3, 5, 4}, meta).requires_grad_();
  const at::Tensor y =
      grouped_product(x, {.weight = w, .offsets = at::empty({3}, meta.dtype(at::kInt))});
  EXPECT_EQ(y.sizes(), at::IntArrayRef({7, 4}));
  y.backward(at::empty({7, 4}, meta));
  EXPECT_EQ(w.grad().sizes(), w.sizes());
}

}  // namespace
}  // namespace braid::kernels
