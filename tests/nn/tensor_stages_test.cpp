// SPDX-License-Identifier: BSD-3-Clause
// Models that hold some of their blocks: stages one after the other are the whole model, names and
// initial values are those of the whole, and a tied embedding is there twice.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <set>

#include "nn/tensor_spread.h"

namespace braid::nn::tensor_stages {  // names of its own, also in a unity build
namespace {

constexpr int64_t staged_blocks = 4, staged_entries = 29, staged_length = 10;

std::unique_ptr<Model> model_of(bool llama, bool tied, const Build& build) {
  if (llama)
    return make_llama({.vocabulary = staged_entries,
                       .sequence = 12,
                       .layers = staged_blocks,
                       .heads = 4,
                       .kv_heads = 2,
                       .width = 16,
                       .hidden = 20,
                       .tied = tied},
                      build);
  return make_gpt({.vocabulary = staged_entries,
                   .sequence = 12,
                   .layers = staged_blocks,
                   .heads = 4,
                   .width = 16,
                   .dropout = 0.2,
                   .tied = tied},
                  build);
}

// Runs the stages in order, over the models that hold them, and gives the last one's output.
at::Tensor through(const std::vector<Range>& stages,
                   const std::vector<std::shared_ptr<Model>>& models, const at::Tensor& tokens) {
  Carry carry = {tokens};
  for (size_t i = 0; i < stages.size(); ++i) {
    carry = models[i]->stage(stages[i], carry, test::training_pass);
    if (i + 1 == stages.size()) continue;
    const auto specs = models[i]->carried(tokens);
    EXPECT_EQ(specs.size(), carry.size());
    EXPECT_EQ(carry[0].sizes(), at::IntArrayRef(specs[0].shape));
    EXPECT_EQ(carry[0].scalar_type(), specs[0].dtype);
  }
  return carry[0];
}

void expect_stages(bool llama, bool tied) {
  const test::Texts data = test::texts(2, staged_length, staged_entries);
  const auto one = model_of(llama, tied, test::build_on({}));
  const test::Outcome expected = test::pass_of(*one, data);

  // The rank of a V: first and last stage; and one with the middle. Then three ranks in a row.
  const std::vector<Range> stages = {{0, 1}, {1, 3}, {3, 4}};
  const auto holding = [&](std::vector<Range> some) {
    return std::shared_ptr<Model>(model_of(llama, tied, test::build_on({.stages = some})));
  };
  const auto ends = holding({stages[0], stages[2]}), middle = holding({stages[1]});
  const std::vector<std::shared_ptr<Model>> in_a_row = {holding({stages[0]}), middle,
                                                        holding({stages[2]})};
  EXPECT_TRUE(through(stages, {ends, middle, ends}, data.tokens).equal(expected.output));
  EXPECT_TRUE(through(stages, in_a_row, data.tokens).equal(expected.output));

  std::set<std::string> names, whole;
  for (const Param& param : one->params()) whole.insert(param.name);
  for (const auto& model : in_a_row)
    for (const Param& param : model->params())
      EXPECT_TRUE(names.insert(param.name).second) << param.name << " is there twice";
  EXPECT_EQ(names, whole);
  for (const auto& model : in_a_row) {
    EXPECT_EQ(model->blocks(), one->blocks());
    EXPECT_EQ(model->flops_forward(), one->flops_forward());
  }
}

TEST(Stages, AreTheModelOneAfterTheOther) {
  for (const bool llama : {false, true})
    for (const bool tied : {false, true}) {
      SCOPED_TRACE((llama ? "llama" : "gpt") + std::string(tied ? ", tied" : ""));
      expect_stages(llama, tied);
    }
}

TEST(Stages, ATiedEmbeddingHasACopyThatIsNoParameter) {
  const auto make = [](std::vector<Range> stages) {
    return model_of(false, true, test::build_on({.stages = std::move(stages)}));
  };
  const auto first = make({{0, 2}}), last = make({{2, 4}}), middle = make({{1, 3}});
  EXPECT_FALSE(middle->tied().has_value());
  const Param from = first->tied().value(), copy = last->tied().value();
  EXPECT_EQ(from.name, "transformer.wte.weight");
  EXPECT_EQ(copy.name, from.name);
  EXPECT_TRUE(copy.tensor.is_leaf() && copy.tensor.requires_grad());
  EXPECT_TRUE(copy.tensor.equal(from.tensor));
  for (const Param& param : last->params()) EXPECT_NE(param.name, copy.name);
  EXPECT_TRUE(from.tensor.is_same(first->params()[0].tensor));

  // The gradient of the whole is that of the two ends together.
  const test::Texts data = test::texts(2, staged_length, staged_entries);
  const auto one = model_of(false, true, test::build_on({}));
  test::pass_of(*one, data);
  const Carry carry = first->stage({0, 2}, {data.tokens}, test::training_pass);
  const at::Tensor scores = last->stage({2, 4}, carry, test::training_pass)[0];
  loss(Loss::cross_entropy, scores, data.target).backward();
  const at::Tensor sum = from.tensor.grad().add(copy.tensor.grad());
  EXPECT_LE(test::Together::apart(sum, one->params()[0].tensor.grad()), 1e-13);
}

TEST(Stages, KnowTheirTokensWhereRanksOfTensorShareThem) {
  const test::Texts data = test::texts(2, staged_length, staged_entries);
  const at::Tensor expected =
      model_of(true, false, test::build_on({}))->forward(data.tokens, test::training_pass);
  test::on_ranks(2, [&](comm::Group world) {
    const auto holding = [&](std::vector<Range> stages) {
      return std::shared_ptr<Model>(model_of(
          true, false, test::build_on({.tensor = world, .sequence = true, .stages = stages})));
    };
    const auto first = holding({{0, 2}}), last = holding({{2, 4}});
    const at::Tensor scores = through({{0, 2}, {2, 4}}, {first, last}, data.tokens);
    EXPECT_LE(test::Together::apart(last->whole_output(scores), expected), 1e-12);
  });
}

}  // namespace
}  // namespace braid::nn::tensor_stages
