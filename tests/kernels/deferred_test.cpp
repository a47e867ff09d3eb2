// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/deferred.h"

#include <gtest/gtest.h>

#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "support/drawn.h"

namespace braid::kernels {
namespace {

using test::drawn;

struct Operands {
  at::Tensor x, weight, bias;
};

struct Results {
  at::Tensor y, dx, dw, db;
};

// How x and the weight lie in memory, and what stands between a parameter and the layer.
struct DeferredCase {
  std::vector<int64_t> shape;
  bool bias = true;
  std::string way = "plain";
};

std::ostream& operator<<(std::ostream& out, const DeferredCase& c) {
  return out << c.way << " " << at::IntArrayRef(c.shape) << (c.bias ? "" : " without bias");
}

class DeferredLinear : public testing::TestWithParam<DeferredCase> {};

Operands operands_of(const DeferredCase& c) {
  Operands all;
  all.x = drawn(c.shape, 1, "x");
  if (c.way == "columns") all.x = drawn({5, 7}, 1, "x").t();               // [7, 5]
  if (c.way == "holes") all.x = drawn({4, 3, 5}, 1, "x").transpose(0, 1);  // [3, 4, 5]
  if (c.way == "sliced") all.x = drawn({7, 9}, 1, "x").narrow(1, 2, 5);    // [7, 5]
  const bool turned = c.way == "turned";
  all.weight = drawn(turned ? at::IntArrayRef{5, 6} : at::IntArrayRef{6, 5}, 1, "w");
  if (c.bias) all.bias = drawn({6}, 1, "b");
  if (c.way == "cast") all.x = all.x.to(c10::kFloat);
  for (at::Tensor* each : {&all.x, &all.weight, &all.bias})
    if (each->defined()) each->requires_grad_();
  if (c.way == "input") all.x = all.x.detach();
  return all;
}

at::Tensor weight_of(const Operands& all, const std::string& way) {
  if (way == "turned") return all.weight.t();
  if (way == "cast") return all.weight.to(c10::kFloat);
  if (way == "masked") return all.weight.mul(all.weight);  // its backward pass goes once only
  return all.weight;
}

Results pass(const DeferredCase& c, const std::shared_ptr<Deferred>& later) {
  const Operands all = operands_of(c);
  const at::Tensor bias = c.way == "cast" && c.bias ? all.bias.to(c10::kFloat) : all.bias;
  const at::Tensor y = linear(all.x, weight_of(all, c.way), bias, later);
  y.backward(drawn(y.sizes(), 2, "dy").to(y.scalar_type()));
  if (later) {
    EXPECT_FALSE(all.weight.grad().defined());
    EXPECT_EQ(later->waiting(), c.bias ? 2 : 1);
    later->run(later->key());
    EXPECT_EQ(later->waiting(), 0);
  }
  return {y, all.x.grad(), all.weight.grad(), c.bias ? all.bias.grad() : at::Tensor()};
}

void expect_deferred(const at::Tensor& a, const at::Tensor& b, const char* what) {
  ASSERT_EQ(a.defined(), b.defined()) << what;
  if (a.defined()) EXPECT_TRUE(at::equal(a, b)) << what;
}

std::shared_ptr<Deferred> active_deferred() {
  auto later = std::make_shared<Deferred>();
  later->set_active(true);
  later->open(3);
  return later;
}

TEST_P(DeferredLinear, GivesTheBitsOfTheWholeBackwardPass) {
  const Results whole = pass(GetParam(), nullptr), split = pass(GetParam(), active_deferred());
  expect_deferred(split.y, whole.y, "y");
  expect_deferred(split.dx, whole.dx, "dx");
  expect_deferred(split.dw, whole.dw, "dw");
  expect_deferred(split.db, whole.db, "db");
}

INSTANTIATE_TEST_SUITE_P(
    Cases, DeferredLinear,
    testing::Values(DeferredCase{{7, 5}}, DeferredCase{{7, 5}, false}, DeferredCase{{3, 4, 5}},
                    DeferredCase{{3, 4, 5}, false}, DeferredCase{{2, 3, 2, 5}},
                    DeferredCase{{2, 3, 2, 5}, false}, DeferredCase{{5}}, DeferredCase{{1, 5}},
                    DeferredCase{{7, 5}, true, "columns"}, DeferredCase{{7, 5}, false, "columns"},
                    DeferredCase{{7, 5}, true, "sliced"}, DeferredCase{{3, 4, 5}, true, "holes"},
                    DeferredCase{{3, 4, 5}, false, "holes"}, DeferredCase{{7, 5}, true, "turned"},
                    DeferredCase{{3, 4, 5}, true, "turned"}, DeferredCase{{7, 5}, true, "cast"},
                    DeferredCase{{3, 4, 5}, false, "cast"}, DeferredCase{{7, 5}, true, "masked"},
                    DeferredCase{{7, 5}, true, "input"}));

class CountingHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit CountingHook(int* count) : count_(count) {}
  void operator()(const at::Tensor& param) override {
    ASSERT_TRUE(param.grad().defined());
    ++*count_;
  }

 private:
  int* count_;
};

// Two layers use parts of one weight, as fused q, k, v do: it is added to once, its hook runs once.
TEST(Deferred, TakesAllGradientsOfAKeyToAParameterInOnePass) {
  const auto run = [](const std::shared_ptr<Deferred>& later, int* hooks) {
    const at::Tensor w = drawn({8, 4}, 1, "w").requires_grad_(), x = drawn({3, 4}, 1, "x");
    torch::autograd::impl::set_post_acc_grad_hooks(w, std::make_unique<CountingHook>(hooks));
    const at::Tensor a = linear(x, w.narrow(0, 0, 4), {}, later).tanh();
    const at::Tensor b = linear(a, w.narrow(0, 4, 4), {}, later).tanh();
    linear(b, w.narrow(0, 2, 4), {}, later).square().sum().backward();
    if (later) {
      EXPECT_EQ(*hooks, 0);
      later->run(3);
    }
    return w.grad();
  };
  int whole = 0, split = 0;
  const at::Tensor expected = run(nullptr, &whole);
  EXPECT_TRUE(at::equal(run(active_deferred(), &split), expected));
  EXPECT_EQ(whole, 1);
  EXPECT_EQ(split, 1);
}

TEST(Deferred, KeepsKeysApartAndAddsInTheOrderOfTheRuns) {
  const auto later = active_deferred();
  const at::Tensor w = drawn({2, 2}, 1, "w").requires_grad_();
  const at::Tensor first = drawn({3, 2}, 1, "x"), second = drawn({1, 2}, 2, "x");
  later->open(0);
  const at::Tensor a = linear(first, w, {}, later).sum();
  later->open(1);
  const at::Tensor b = linear(second, w, {}, later).sum();
  a.backward();
  b.backward();
  later->run(1);
  EXPECT_TRUE(at::equal(w.grad(), second.expand({2, 2})));
  EXPECT_EQ(later->waiting(), 1);
  later->run(0);
  EXPECT_EQ(later->waiting(), 0);
  EXPECT_TRUE(at::equal(w.grad(), second.add(first.sum(0)).expand({2, 2})));
  later->run(7);  // nothing waits
}

TEST(Deferred, LetsGoOfWhatItHeldAndOfWhatIsFrozen) {
  const auto later = active_deferred();
  at::Tensor x = drawn({3, 2}, 1, "x");
  const auto storage = x.getIntrusivePtr()->storage();
  const at::Tensor w = drawn({2, 2}, 1, "w").requires_grad_();
  const auto users = [&] { return storage.use_count(); };
  const auto before = users();
  linear(x, w, {}, later).sum().backward();
  EXPECT_GT(users(), before);
  later->run(3);
  EXPECT_EQ(users(), before);
  x.requires_grad_();
  linear(x, w.detach(), {}, later).sum().backward();
  EXPECT_EQ(later->waiting(), 0) << "a frozen weight has no gradient";
  EXPECT_TRUE(x.grad().defined());
}

TEST(Deferred, IsAPlainLinearWhereNobodyAsksForMore) {
  const auto later = std::make_shared<Deferred>();
  const at::Tensor x = drawn({3, 2}, 1, "x"), w = drawn({2, 2}, 1, "w").requires_grad_();
  linear(x, w, {}, later).sum().backward();
  EXPECT_TRUE(w.grad().defined());
  EXPECT_EQ(later->waiting(), 0);
}

}  // namespace
}  // namespace braid::kernels
