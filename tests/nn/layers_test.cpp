// SPDX-License-Identifier: BSD-3-Clause
// Initial values, dropout masks, precision of layers, attention kernels.
#include "braid/nn/layers.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/kernels/attention.h"
#include "braid/nn/options.h"
#include "nn/fields.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

at::Tensor noise(at::IntArrayRef sizes, std::string_view name,
                 c10::ScalarType dtype = c10::kDouble) {
  at::Tensor x = at::empty(sizes, dtype);
  fill_normal(x, random_key(11, name));
  return x;
}

TEST(Layers, InitialValuesDependOnSeedNameAndElementAlone) {
  const Linear a(Scope{{.seed = 5}, "blocks.3.q"}, 40, 30),
      b(Scope{{.seed = 5}, "blocks.3.q"}, 40, 30);
  const Linear other_name(Scope{{.seed = 5}, "blocks.4.q"}, 40, 30),
      other_seed(Scope{{.seed = 6}, "blocks.3.q"}, 40, 30);
  EXPECT_TRUE(a.weight.equal(b.weight));
  EXPECT_FALSE(a.weight.equal(other_name.weight));
  EXPECT_FALSE(a.weight.equal(other_seed.weight));

  at::Tensor rows = at::empty({10, 40});  // what a rank that holds rows 7 to 16 would draw
  fill_normal(rows, random_key(5, "blocks.3.q.weight"), {.std = 0.02, .low = -2, .high = 2},
              7 * 40);
  EXPECT_TRUE(a.weight.detach().narrow(0, 7, 10).equal(rows));
}

TEST(Layers, InitialValuesHaveTheDistributionsOfTheReferences) {
  const Linear linear(Scope{{.seed = 1}, "fc"}, 500, 400);
  EXPECT_NEAR(linear.weight.std().item<double>(), 0.02, 0.0002);
  EXPECT_NEAR(linear.weight.mean().item<double>(), 0, 0.0002);
  EXPECT_EQ(linear.bias.abs().max().item<double>(), 0);

  const Conv2d conv(Scope{{.seed = 1}, "conv"}, 20, 64, {.kernel = 8, .stride = 8, .padding = 0});
  const double bound = 1 / std::sqrt(20.0 * 8 * 8);
  EXPECT_LE(conv.weight.abs().max().item<double>(), bound);
  EXPECT_GT(conv.weight.abs().max().item<double>(), 0.999 * bound);
  EXPECT_NEAR(conv.weight.std().item<double>(), bound / std::sqrt(3.0), 0.01 * bound);
  EXPECT_LE(conv.bias.abs().max().item<double>(), bound);
  EXPECT_GT(conv.bias.abs().max().item<double>(), 0.8 * bound);

  const LayerNorm norm(Scope{{.seed = 1}, "norm"}, 7, 1e-6);
  EXPECT_EQ(norm.weight.sum().item<double>(), 7);
  EXPECT_EQ(norm.bias.abs().sum().item<double>(), 0);
}

TEST(Layers, LinearStoredInOutIsTheSameMap) {
  const Scope scope = {{.precision = precision("fp64")}, "fc"};
  const Linear plain(scope, 6, 4), turned(scope, 6, 4, {.stored_in_out = true});
  EXPECT_EQ(turned.weight.sizes(), at::IntArrayRef({6, 4}));
  at::NoGradGuard no_graph;
  turned.weight.copy_(plain.weight.t());
  const at::Tensor x = noise({3, 5, 6}, "x");
  EXPECT_LT(test::largest_difference(turned.forward(x), plain.forward(x)), 1e-14);
}

TEST(Layers, ComputeInTheDtypeOfThePolicy) {
  const auto dtypes = [](std::string_view name) {
    const Linear linear(Scope{{.precision = precision(name)}, "fc"}, 8, 8);
    const LayerNorm norm(Scope{{.precision = precision(name)}, "norm"}, 8, 1e-6);
    const at::Tensor y = linear.forward(noise({2, 8}, "x", c10::kFloat));
    return std::tuple(linear.weight.scalar_type(), y.scalar_type(), norm.forward(y).scalar_type());
  };
  EXPECT_EQ(dtypes("fp64"), std::tuple(c10::kDouble, c10::kDouble, c10::kDouble));
  EXPECT_EQ(dtypes("fp32"), std::tuple(c10::kFloat, c10::kFloat, c10::kFloat));
  EXPECT_EQ(dtypes("bf16"), std::tuple(c10::kFloat, c10::kBFloat16, c10::kBFloat16));
  EXPECT_EQ(dtypes("fp16"), std::tuple(c10::kFloat, c10::kHalf, c10::kHalf));
}

TEST(Layers, DropoutMasksDoNotDependOnHowABatchIsSplit) {
  const Dropout drop(Scope{{}, "blocks.0"}, "drop", 0.3);
  const at::Tensor x = at::empty({6, 50, 20}).fill_(1);
  const Pass pass = {.training = true, .seed = 9, .step = 4};
  const at::Tensor whole = drop(x, pass);
  const at::Tensor first = drop(x.narrow(0, 0, 2), pass);
  const at::Tensor rest =
      drop(x.narrow(0, 2, 4), {.training = true, .seed = 9, .step = 4, .first_sample = 2});
  EXPECT_TRUE(whole.equal(at::cat({first, rest})));
  EXPECT_FALSE(whole.equal(drop(x, {.training = true, .seed = 9, .step = 5})));
  EXPECT_FALSE(whole.equal(drop(x, {.training = true, .seed = 8, .step = 4})));
  EXPECT_FALSE(whole.equal(Dropout(Scope{{}, "blocks.1"}, "drop", 0.3)(x, pass)));
  EXPECT_TRUE(drop(x, {.seed = 9, .step = 4}).equal(x)) << "evaluation keeps all";

  EXPECT_NEAR(whole.eq(0).to(c10::kDouble).mean().item<double>(), 0.3, 0.015);
  EXPECT_FLOAT_EQ(whole.max().item<float>(), 1 / 0.7f);
}

TEST(Layers, DropPathTakesWholeSamples) {
  const DropPath path(Scope{{}, "blocks.0"}, "path", 0.5);
  const at::Tensor x = at::empty({400, 3, 2}).fill_(1);
  const Pass pass = {.training = true, .seed = 9, .step = 4};
  const at::Tensor y = path(x, pass).value();
  const at::Tensor sums = y.sum({1, 2});
  EXPECT_TRUE(sums.eq(0).logical_or(sums.eq(12)).all().item<bool>());
  EXPECT_NEAR(sums.eq(0).to(c10::kDouble).mean().item<double>(), 0.5, 0.1);
  const at::Tensor part =
      path(x.narrow(0, 100, 50), {.training = true, .seed = 9, .step = 4, .first_sample = 100})
          .value();
  EXPECT_TRUE(part.equal(y.narrow(0, 100, 50)));
}

TEST(Layers, MasksByTensorOperationsAreThoseOfTheLoop) {
  const at::Tensor like = at::zeros({13, 77});
  const RandomKey key = random_key(3, "mask");
  const auto by_ops = c10::Dispatcher::singleton()
                          .findSchemaOrThrow("braid::keep_mask_by_ops", "")
                          .typed<at::Tensor(const at::Tensor&, double, int64_t, int64_t,
                                            const std::optional<at::Tensor>&)>();
  const int64_t first = int64_t{1} << 40;
  EXPECT_TRUE(kernels::keep_mask(like, 0.37, key, first)
                  .equal(by_ops.call(like, 0.37, static_cast<int64_t>(key.bits), first, {})));
}

TEST(Layers, MasksOfAStepOnTheDeviceAreThoseOfTheStep) {
  const at::Tensor x = noise({64, 8}, "x");
  const Dropout drop(Scope{{}, "blocks.0"}, "drop", 0.5);
  const at::Tensor step = at::full({}, 4, c10::kLong);
  const auto at_step = [&](int64_t number) {
    return drop(x, {.training = true, .seed = 9, .step = number});
  };
  const auto late = [&] {
    return drop(x, {.training = true, .seed = 9, .step = 0, .device_step = step});
  };
  EXPECT_TRUE(late().equal(at_step(4)));
  step.fill_(7);
  EXPECT_TRUE(late().equal(at_step(7)));
}

TEST(Attention, NamedKernelEqualsTheWrittenOutFormula) {
  for (const bool causal : {false, true}) {
    const at::Tensor q = noise({2, 4, 9, 8}, "q").requires_grad_(),
                     k = noise({2, 2, 9, 8}, "k").requires_grad_();
    const at::Tensor v = noise({2, 2, 9, 8}, "v").requires_grad_(), seed = noise({2, 4, 9, 8}, "g");
    const kernels::AttentionOptions options = {.causal = causal};
    EXPECT_EQ(kernels::attention_kernel(q, v, options), kernels::AttentionKernel::flash_cpu);
    kernels::attention(q, k, v, options).mul(seed).sum().backward();
    const std::vector<at::Tensor> grads = {q.grad().clone(), k.grad().clone(), v.grad().clone()};
    for (const at::Tensor& x : {q, k, v}) x.mutable_grad().reset();

    // A rate so small that nothing is dropped still takes the written-out path.
    kernels::AttentionOptions written = options;
    written.drop = {.rate = 1e-12};
    ASSERT_EQ(kernels::attention_kernel(q, v, written), kernels::AttentionKernel::written_out);
    const at::Tensor y = kernels::attention(q, k, v, written);
    EXPECT_LT(test::largest_difference(kernels::attention(q, k, v, options), y), 1e-11);
    y.mul(seed).sum().backward();
    EXPECT_LT(test::largest_difference(grads[0], q.grad()), 1e-11);
    EXPECT_LT(test::largest_difference(grads[1], k.grad()), 1e-11);
    EXPECT_LT(test::largest_difference(grads[2], v.grad()), 1e-11);
  }
}

TEST(Attention, IsBitStableAndRunsInEveryDtype) {
  for (const c10::ScalarType dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf}) {
    const at::Tensor q = noise({2, 3, 33, 16}, "q", dtype), k = noise({2, 3, 33, 16}, "k", dtype);
    const at::Tensor v = noise({2, 3, 33, 16}, "v", dtype), y = kernels::attention(q, k, v);
    EXPECT_EQ(y.scalar_type(), dtype);
    EXPECT_TRUE(y.equal(kernels::attention(q, k, v)));
    const at::Tensor exact =
        kernels::attention(q.to(c10::kDouble), k.to(c10::kDouble), v.to(c10::kDouble));
    const double tolerance = dtype == c10::kBFloat16 ? 2e-2 : dtype == c10::kHalf ? 3e-3 : 1e-5;
    EXPECT_LT(test::largest_difference(y, exact), tolerance) << c10::toString(dtype);
  }
}

}  // namespace
}  // namespace braid::nn
