// SPDX-License-Identifier: BSD-3-Clause
// The MLP in stages: the same values, gradients and names as in one piece.
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>

#include "braid/comm/backend.h"
#include "braid/core/rng.h"
#include "braid/nn/options.h"
#include "support/expect.h"

namespace braid::nn {
namespace {

at::Tensor mlp_input() {
  const at::Tensor x = at::empty({5, 2}, c10::kDouble);
  fill_normal(x, random_key(1, "x"));
  return x;
}

Build mlp_build(std::vector<Range> stages) {
  return {.seed = 1, .precision = precision("fp64"), .layout = {.stages = std::move(stages)}};
}

// As ranks with these stages would run it one after the other, with leaves in between.
TEST(MlpStages, GiveTheValuesAndGradientsOfTheWhole) {
  const MlpOptions options{.dropout = 0.5};  // hidden 64, 32, 16
  const Pass pass{.training = true, .seed = 1, .step = 3};
  const auto whole = make_mlp(options, mlp_build({}));
  const at::Tensor output = whole->forward(mlp_input(), pass);
  output.square().sum().backward();

  const std::vector<Range> stages = {{0, 1}, {1, 3}, {3, 4}};
  std::vector<std::unique_ptr<Model>> parts;
  std::vector<Carry> inputs, outputs;
  Carry carry = {mlp_input()};
  for (const Range& stage : stages) {
    parts.push_back(make_mlp(options, mlp_build({stage})));
    inputs.push_back(carry);
    outputs.push_back(parts.back()->stage(stage, carry, pass));
    if (stage.end == 4) break;
    ASSERT_EQ(outputs.back()[0].sizes().vec(), parts.back()->carried(mlp_input())[0].shape);
    ASSERT_EQ(outputs.back()[0].scalar_type(), parts.back()->carried(mlp_input())[0].dtype);
    carry = {outputs.back()[0].detach().requires_grad_()};
  }
  EXPECT_TRUE(at::equal(outputs.back()[0], output));
  outputs[2][0].square().sum().backward();
  outputs[1][0].backward(inputs[2][0].grad());
  outputs[0][0].backward(inputs[1][0].grad());

  std::vector<Param> all;
  for (const auto& part : parts)
    for (const Param& param : part->params()) all.push_back(param);
  const std::vector<Param> expected = whole->params();
  ASSERT_EQ(all.size(), expected.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].name, expected[i].name);
    EXPECT_TRUE(at::equal(all[i].tensor, expected[i].tensor)) << all[i].name;
    EXPECT_TRUE(at::equal(all[i].tensor.grad(), expected[i].tensor.grad())) << all[i].name;
  }
  EXPECT_EQ(parts[1]->blocks(), whole->blocks());
  EXPECT_EQ(parts[1]->layers().size(), whole->layers().size());
  EXPECT_EQ(parts[1]->flops_forward(), whole->flops_forward());
}

TEST(MlpStages, OfOneRankMayStandApart) {
  const auto part = make_mlp({}, mlp_build({{0, 1}, {2, 3}}));
  std::vector<std::string> names;
  for (const Param& param : part->params()) names.push_back(param.name);
  EXPECT_EQ(names, (std::vector<std::string>{"network.0.weight", "network.0.bias",
                                             "network.6.weight", "network.6.bias"}));
}

TEST(MlpStages, AreTheOnlyWayToSpreadIt) {
  Build build = mlp_build({});
  build.layout.tensor = comm::Group(comm::dry(0, 2));
  const std::string text = test::error_of([&] { make_mlp({}, build); });
  EXPECT_TRUE(test::contains(text, "mesh.tensor = 2 for model mlp"));
  EXPECT_TRUE(test::contains(text, "set mesh.tensor=1"));
}

}  // namespace
}  // namespace braid::nn
