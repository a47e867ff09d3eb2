// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "braid/core/rng.h"
#include "braid/nn/loss.h"
#include "braid/nn/options.h"
#include "nn/fields.h"

namespace braid::nn {
namespace {

TEST(Mlp, HasTheNamesAndTheCountOfTheReference) {
  const auto model = make_mlp({}, {.seed = 1});
  EXPECT_EQ(model->parameters(), 2834);
  std::vector<std::string> names;
  for (const Param& param : model->params()) names.push_back(param.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"network.0.weight", "network.0.bias", "network.3.weight",
                                      "network.3.bias", "network.6.weight", "network.6.bias",
                                      "network.9.weight", "network.9.bias"}));
  EXPECT_EQ(model->flops_forward(), 2 * (2 * 64 + 64 * 32 + 32 * 16 + 16 * 2));
  int64_t rows = 0;
  for (const LayerRow& row : model->layers()) rows += row.parameters;
  EXPECT_EQ(rows, 2834);
}

TEST(Mlp, StartsUniformWithinTheFanIn) {
  const auto params = make_mlp({.inputs = 100, .hidden = {400}}, {.seed = 1})->params();
  EXPECT_LE(params[0].tensor.abs().max().item<double>(), 0.1);
  EXPECT_GT(params[0].tensor.abs().max().item<double>(), 0.0999);
  EXPECT_NEAR(params[0].tensor.std().item<double>(), 0.1 / std::sqrt(3.0), 5e-4);
}

TEST(Mlp, IsTheFormulaOfTheReference) {
  const auto model = make_mlp({.dropout = 0.5}, {.seed = 1, .precision = precision("fp64")});
  at::Tensor x = at::empty({7, 2}, c10::kDouble);
  fill_normal(x, random_key(1, "x"));
  at::Tensor y = x;
  const auto p = model->params();
  for (size_t i = 0; i < p.size(); i += 2) {
    y = y.matmul(p[i].tensor.t()).add(p[i + 1].tensor);
    if (i + 2 < p.size()) y = y.relu();
  }
  EXPECT_LT(test::largest_difference(model->forward(x, {}), y), 1e-14);
  const Pass training = {.training = true, .seed = 1, .step = 1};
  EXPECT_GT(test::largest_difference(model->forward(x, training), y), 1e-3)
      << "dropout works in training";
  const at::Tensor tail = model->forward(
      x.narrow(0, 3, 4), {.training = true, .seed = 1, .step = 1, .first_sample = 3});
  EXPECT_LT(test::largest_difference(tail, model->forward(x, training).narrow(0, 3, 4)), 1e-14);
}

TEST(Mlp, LearnsTwoPoints) {
  const auto model = make_mlp({.dropout = 0}, {.seed = 1});
  const at::Tensor x = at::tensor({1.0F, 0.0F, 0.0F, 1.0F}).view({2, 2}), t = at::tensor({0L, 1L});
  double before = 0, after = 0;
  for (int step = 0; step < 200; ++step) {
    const at::Tensor value = loss(Loss::cross_entropy, model->forward(x, {}), t);
    after = value.item<double>();
    if (step == 0) before = after;
    value.backward();
    at::NoGradGuard no_graph;
    for (const Param& param : model->params()) {
      ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
      param.tensor.sub_(param.tensor.grad(), 0.1);
      param.tensor.grad().zero_();
    }
  }
  EXPECT_LT(after, 0.1 * before);
}

}  // namespace
}  // namespace braid::nn
