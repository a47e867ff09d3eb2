// SPDX-License-Identifier: BSD-3-Clause
// Stages of a ViT, run one after the other by hand, are the whole model.
#include <ATen/ops/cat.h>

#include "nn/vit_layouts.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

std::unique_ptr<Model> stages_of(const Alone& alone, Layout layout, std::vector<Range> stages) {
  layout.stages = std::move(stages);
  return make_vit(alone.options, {.seed = 1, .precision = precision("fp64"), .layout = layout});
}

// What one stage gives the next one travels: it has a gradient of its own.
at::Tensor handed_on(const Model& model, const at::Tensor& input, const Carry& carry) {
  EXPECT_EQ(carry.size(), 1u);
  EXPECT_EQ(model.carried(input),
            (std::vector<CarrySpec>{{carry[0].sizes().vec(), carry[0].scalar_type()}}));
  return carry[0].detach().requires_grad_();
}

void expect_same_in_stages(const Alone& alone, const Layout& layout) {
  const auto first = stages_of(alone, layout, {{0, 2}}), last = stages_of(alone, layout, {{2, 3}});
  const at::Tensor x = vit_input(alone.options).requires_grad_();
  const Carry given = first->stage({0, 2}, {x}, training_pass());
  const at::Tensor taken = handed_on(*first, x, given);
  const at::Tensor y = last->stage({2, 3}, {taken}, training_pass())[0];
  const at::Tensor value =
      loss(Loss::relative_l2, y, last->local_target(vit_target(alone.options)), last->loss_share());
  EXPECT_NEAR(value.item<double>(), alone.loss_value, 1e-12);
  value.backward();
  given[0].backward(taken.grad());
  expect_grads(alone, *first, layout);
  expect_grads(alone, *last, layout);
  EXPECT_EQ(first->params().size() + last->params().size(), alone.grads.size());
}

TEST(VitStages, TwoHaveLossAndGradientsOfOneProcess) {
  for (const double dropout : {0.0, 0.2}) expect_same_in_stages(Alone(small_vit(dropout)), {});
}

TEST(VitStages, AlsoOverTensorAndContext) {
  const Alone alone(small_vit(0.2));
  test::on_ranks(4, [&](comm::Group world) {
    const parallel::Mesh mesh({.tensor = 2, .context = 2}, 4, world.rank());
    for (const bool sequence : {false, true})
      expect_same_in_stages(
          alone, spread_over(world, mesh,
                             {.sequence = sequence, .method = parallel::ContextMethod::ring}));
  });
}

// Several runs of blocks on one rank, as interleaved schedules have them.
TEST(VitStages, ARankMayHoldSeveral) {
  const Alone alone(small_vit(0.2));
  const auto outer = stages_of(alone, {}, {{0, 1}, {2, 3}}), inner = stages_of(alone, {}, {{1, 2}});
  const at::Tensor x = vit_input(alone.options);
  Carry carry = outer->stage({0, 1}, {x}, training_pass());
  carry = inner->stage({1, 2}, carry, training_pass());
  carry = outer->stage({2, 3}, carry, training_pass());
  expect_close(carry[0], alone.output, "output");
  carry[0].sum().backward();
  for (const auto& model : {outer.get(), inner.get()})
    for (const Param& param : model->params())
      EXPECT_TRUE(param.tensor.grad().defined()) << param.name;
}

TEST(VitStages, KeepTheNamesAndTheTableOfTheWhole) {
  const Alone alone(small_vit());
  const auto whole = stages_of(alone, {}, {}), last = stages_of(alone, {}, {{2, 3}});
  EXPECT_EQ(last->blocks(), whole->blocks());
  EXPECT_EQ(last->blocks().size(), 3u);
  EXPECT_EQ(last->params().front().name, "blocks.2.norm1.weight");
  EXPECT_EQ(last->params().back().name, "head.weight");
  EXPECT_EQ(last->layers().size(), whole->layers().size());
  EXPECT_EQ(last->flops_forward(), whole->flops_forward());
}

}  // namespace
}  // namespace braid::nn
