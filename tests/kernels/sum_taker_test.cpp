// SPDX-License-Identifier: BSD-3-Clause
// Gradients of biases that come along with the gradient of the layer's output, against those that
// are summed by the layer itself.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <string_view>

#include "braid/kernels/linear.h"
#include "braid/kernels/norm.h"
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
Tensors mlp_outputs(const Mlp& l, Activation kind, bool summed, bool twice = false) {
  const at::Tensor h = linears(l.x, {{l.w1, l.b1}})[0];
  Tensors all = {linears({kind, summed ? h.view_as(h) : h}, {{l.w2, l.b2}})[0]};
  if (twice) all.push_back(h);
  return all;
}

Tensors taken_grads(const Tensors& outputs, const Tensors& inputs, bool keep_graph = false) {
  Tensors seeds;
  for (const at::Tensor& y : outputs)
    seeds.push_back(drawn(y.sizes(), 4, "seed").to(y.scalar_type()));
  return torch::autograd::grad(outputs, inputs, seeds, keep_graph, false, /*allow_unused=*/true);
}

void expect_same_bits(const Tensors& got, const Tensors& want) {
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(got[i].equal(want[i])) << i;
}

// How often the operator ran.
class RunsOf {
 public:
  explicit RunsOf(const char* name) {
    name_ = name;
    count_ = 0;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function)
                                       -> std::unique_ptr<at::ObserverContext> {
          if (std::string_view(function.name()) == name_) ++count_;
          return nullptr;
        }).scopes({at::RecordScope::FUNCTION}));
  }
  ~RunsOf() { at::removeCallback(handle_); }
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
        expect_same_bits(taken_grads(mlp_outputs(mlp, kind, false, twice), mlp.all()),
                         taken_grads(mlp_outputs(mlp, kind, true, twice), mlp.all()));
      }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, SumOnTheWay,
                         testing::Values(std::pair(c10::kDouble, c10::kDouble),
                                         std::pair(c10::kFloat, c10::kBFloat16),
                                         std::pair(c10::kBFloat16, c10::kBFloat16)));

// A layer whose output is the branch of a norm; padded: zeros behind rows of x.
struct Residual {
  at::Tensor x, in, w, b, weight, bias;
  bool dropped = false, padded = false;
  Tensors all() const { return {x, in, w, b, weight, bias}; }
};

Residual residual_of(c10::ScalarType stream, c10::ScalarType compute, bool dropped, bool padded,
                     int64_t rows = 5) {
  const auto leaf = [](at::IntArrayRef sizes, const char* name, c10::ScalarType dtype) {
    return drawn(sizes, 1, name).to(dtype).detach().requires_grad_();
  };
  const int64_t out = padded ? 8 : 6;
  return {leaf({6, rows, 6}, "x", stream),
          leaf({6, rows, 3}, "in", compute),
          leaf({out, 3}, "w", stream),
          leaf({out}, "b", stream),
          leaf({6}, "weight", stream),
          leaf({6}, "bias", stream),
          dropped,
          padded};
}

Tensors branch_outputs(const Residual& l, bool summed, bool twice = false) {
  const at::Tensor h = linears(l.in, {{l.w, l.b}})[0], g = summed ? h.view_as(h) : h;
  const Branch branch = l.dropped ? drop_branch(g, {.rate = 0.4, .key = {5}}) : Branch(g);
  const auto [sum, y] = add_norm_rows(l.x, branch, {l.weight, l.bias},
                                      {.dtype = h.scalar_type(), .lanes = l.padded ? 8 : 0});
  Tensors all = {sum, y};
  if (twice) all.push_back(h);
  return all;
}

TEST_P(SumOnTheWay, OfABranchIsThatOfTheLayerToTheBit) {
  const auto [stream, compute] = GetParam();
  for (const bool dropped : {false, true})
    for (const bool padded : {false, true})
      for (const bool twice : {false, true})
        for (const int64_t rows : {1, 5, 700}) {
          const Residual layer = residual_of(stream, compute, dropped, padded, rows);
          expect_same_bits(taken_grads(branch_outputs(layer, false, twice), layer.all()),
                           taken_grads(branch_outputs(layer, true, twice), layer.all()));
        }
}

TEST(SumOnTheWay, OfABranchTakesTheLayersPlace) {
  for (const auto compute : {c10::kFloat, c10::kBFloat16})
    for (const bool dropped : {false, true}) {
      const Residual layer = residual_of(c10::kFloat, compute, dropped, false);
      const auto sums = [&](const Tensors& inputs, bool summed, bool twice = false) {
        const Tensors outputs = branch_outputs(layer, summed, twice);
        const RunsOf runs("braid::column_sum");
        taken_grads(outputs, inputs);
        return runs.count();
      };
      EXPECT_EQ(sums(layer.all(), true), 1);
      EXPECT_EQ(sums(layer.all(), false), 0);
      EXPECT_EQ(sums(layer.all(), false, /*twice=*/true), 1);
      EXPECT_EQ(sums({layer.x, layer.in}, false), 0);
    }
}

int sums_of(const Mlp& mlp, const Tensors& inputs, bool summed, bool twice = false) {
  const Tensors outputs = mlp_outputs(mlp, Activation::gelu, summed, twice);
  const RunsOf runs("braid::column_sum");
  taken_grads(outputs, inputs);
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
  const Tensors outputs = mlp_outputs(mlp, Activation::gelu, false);
  const Tensors once = taken_grads(outputs, mlp.all(), true),
                twice = taken_grads(outputs, mlp.all());
  expect_same_bits(once, twice);
  for (size_t i = 0; i < once.size(); ++i)
    expect_same_bits(taken_grads(mlp_outputs(mlp, Activation::gelu, false), {mlp.all()[i]}),
                     {once[i]});
}

TEST(SumOnTheWay, IsOfNoUseToAFrozenBias) {
  for (const bool biased : {false, true}) {
    Mlp mlp = mlp_of(c10::kDouble, c10::kDouble);
    mlp.b1 = biased ? mlp.b1.detach() : at::Tensor();
    EXPECT_EQ(sums_of(mlp, {mlp.x, mlp.w1}, false), 0) << biased;
    const Tensors some = {mlp.x, mlp.w1, mlp.w2, mlp.b2};
    expect_same_bits(taken_grads(mlp_outputs(mlp, Activation::gelu, false), some),
                     taken_grads(mlp_outputs(mlp, Activation::gelu, true), some));
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
    const Tensors got = taken_grads({linears({Activation::gelu, h}, {{mlp.w2}})[0]}, {mlp.b1});
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
      const RunsOf runs("braid::column_sum");
      Tensors all = taken_grads(y, mlp.all());
      EXPECT_EQ(runs.count(), summed ? 2 : 1);
      return all;
    };
    expect_same_bits(grads(false), grads(true));
  }
}

}  // namespace
}  // namespace braid::kernels
