// SPDX-License-Identifier: BSD-3-Clause
// Gradients of biases that come along with the gradient of the layer's output, against those that
// are summed by the layer itself.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string_view>

#include "braid/kernels/linear.h"
#include "kernels/column_sum.h"
#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;
using Tensors = std::vector<at::Tensor>;

struct Mlp {
  at::Tensor x, w1, b1, w2, b2;
  Tensors all() const { return {x, w1, b1, w2, b2}; }
};

Mlp mlp_of(c10::ScalarType param, c10::ScalarType compute, int64_t rows = 7) {
  const auto leaf = [](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
    return drawn(sizes, 1, name).to(dtype).detach().requires_grad_();
  };
  return {leaf({2, rows, 5}, "x", compute), leaf({9, 5}, "w1", param), leaf({9}, "b1", param),
          leaf({4, 9}, "w2", param), leaf({4}, "b2", param)};
}

// summed: through a view, which no sum comes through.
Tensors outputs_of(const Mlp& l, Activation kind, bool summed, bool twice = false) {
  const at::Tensor h = linears(l.x, {{l.w1, l.b1}})[0];
  Tensors all = {linears({kind, summed ? h.view_as(h) : h}, {{l.w2, l.b2}})[0]};
  if (twice) all.push_back(h);
  return all;
}

Tensors grads_of(const Tensors& outputs, const Tensors& inputs, bool keep_graph = false) {
  Tensors seeds;
  for (const at::Tensor& y : outputs)
    seeds.push_back(drawn(y.sizes(), 4, "seed").to(y.scalar_type()));
  return torch::autograd::grad(outputs, inputs, seeds, keep_graph, false, /*allow_unused=*/true);
}

void expect_same(const Tensors& got, const Tensors& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].equal(want[i])) << i;
}

// How often the operator ran.
class Runs {
 public:
  explicit Runs(const char* name) {
    name_ = name;
    count_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (std::string_view(function.name()) == name_) ++count_;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~Runs() { at::removeCallback(handle_); }
  int count() const { return count_; }

 private:
  static inline thread_local const char* name_ = "";
  static inline thread_local int count_ = 0;
  at::CallbackHandle handle_;
};

class SumOnTheWay : public testing::TestWithParam<std::pair<c10::ScalarType, c10::ScalarType>> {};

TEST_P(SumOnTheWay, IsThatOfTheLayerToTheBit) {
  const auto [param, compute] = GetParam();
  for (const Activation kind : {Activation::gelu, Activation::gelu_tanh})
    for (const int64_t rows : {1, 7, 1500})
      for (const bool twice : {false, true}) {
        const Mlp mlp = mlp_of(param, compute, rows);
        expect_same(grads_of(outputs_of(mlp, kind, false, twice), mlp.all()),
                    grads_of(outputs_of(mlp, kind, true, twice), mlp.all()));
      }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SumOnTheWay,
                         testing::Values(std::pair(c10::kDouble, c10::kDouble),
                                         std::pair(c10::kFloat, c10::kBFloat16),
                                         std::pair(c10::kBFloat16, c10::kBFloat16)));

int sums_of(const Mlp& mlp, const Tensors& inputs, bool summed, bool twice = false) {
  const Tensors outputs = outputs_of(mlp, Activation::gelu, summed, twice);
  const Runs runs("braid::column_sum");
  grads_of(outputs, inputs);
  return runs.count();
}

TEST(SumOnTheWay, TakesTheLayersPlace) {
  const Mlp mlp = mlp_of(c10::kFloat, c10::kBFloat16);
  EXPECT_EQ(sums_of(mlp, mlp.all(), true), 2);   // of both layers
  EXPECT_EQ(sums_of(mlp, mlp.all(), false), 1);  // of the second one
  EXPECT_EQ(sums_of(mlp, {mlp.b1}, false), 0);
  EXPECT_EQ(sums_of(mlp, {mlp.b1}, false, /*twice=*/true), 1);  // more was added to the gradient
  EXPECT_EQ(sums_of(mlp, {mlp.x}, false), 0);
}

TEST(SumOnTheWay, IsGivenAsOftenAsItIsAskedFor) {
  const Mlp mlp = mlp_of(c10::kDouble, c10::kDouble);
  const Tensors outputs = outputs_of(mlp, Activation::gelu, false);
  const Tensors once = grads_of(outputs, mlp.all(), true), twice = grads_of(outputs, mlp.all());
  expect_same(once, twice);
  for (size_t i = 0; i < once.size(); ++i)
    expect_same(grads_of(outputs_of(mlp, Activation::gelu, false), {mlp.all()[i]}), {once[i]});
}

TEST(SumOnTheWay, IsOfNoUseToAFrozenBias) {
  for (const bool biased : {false, true}) {
    Mlp mlp = mlp_of(c10::kDouble, c10::kDouble);
    mlp.b1 = biased ? mlp.b1.detach() : at::Tensor();
    EXPECT_EQ(sums_of(mlp, {mlp.x, mlp.w1}, false), 0) << biased;
    const Tensors some = {mlp.x, mlp.w1, mlp.w2, mlp.b2};
    expect_same(grads_of(outputs_of(mlp, Activation::gelu, false), some),
                grads_of(outputs_of(mlp, Activation::gelu, true), some));
  }
}

TEST(SumOnTheWay, HooksMayChangeTheGradient) {
  const Mlp mlp = mlp_of(c10::kDouble, c10::kDouble);
  for (const bool in_place : {false, true}) {
    const at::Tensor h = linears(mlp.x, {{mlp.w1, mlp.b1}})[0];
    at::Tensor seen;
    h.register_hook([&](at::Tensor grad) {
      seen = in_place ? grad.mul_(2) : grad.mul(2);
      return seen;
    });
    const Tensors got = grads_of({linears({Activation::gelu, h}, {{mlp.w2}})[0]}, {mlp.b1});
    EXPECT_TRUE(got[0].equal(column_sum(seen.view({-1, 9}), c10::kDouble))) << in_place;
  }
}

TEST(SumOnTheWay, Fp8LayersGiveAndTakeIt) {
  const auto leaf = [](at::IntArrayRef sizes, const char* name) {
    return drawn(sizes, 1, name).to(c10::kBFloat16).detach().requires_grad_();
  };
  const Mlp mlp = {leaf({2, 16, 32}, "x"), leaf({48, 32}, "w1"), leaf({48}, "b1"),
                   leaf({16, 48}, "w2"), leaf({16}, "b2")};
  for (const Fp8 how : {Fp8::tensor, Fp8::row}) {
    const auto grads = [&](bool summed) {
      const at::Tensor h = linears(mlp.x, {{mlp.w1, mlp.b1}}, {.fp8 = how})[0];
      const at::Tensor g = summed ? h.view_as(h) : h;
      const Tensors y = linears({Activation::gelu, g}, {{mlp.w2, mlp.b2}}, {.fp8 = how});
      const Runs runs("braid::column_sum");
      Tensors all = grads_of(y, mlp.all());
      EXPECT_EQ(runs.count(), summed ? 2 : 1);
      return all;
    };
    expect_same(grads(false), grads(true));
  }
}

}  // namespace
}  // namespace braid::kernels
