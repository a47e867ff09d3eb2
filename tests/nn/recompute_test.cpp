// SPDX-License-Identifier: BSD-3-Clause
// Every model with parts of it computed again: the same bits, and each part runs twice.
#include "nn/recompute_models.h"

namespace braid::nn {
namespace {

using memory::Again;

class RecomputeModels : public testing::TestWithParam<size_t> {
 protected:
  SmallModel model_ = small_models().at(GetParam());
  bool has_groups() const { return model_.name == "swinir"; }
};
INSTANTIATE_TEST_SUITE_P(All, RecomputeModels, testing::Range<size_t>(0, small_models().size()),
                         [](const auto& info) { return small_models()[info.param].name; });

TEST_P(RecomputeModels, BlocksAreBitEqualAndRunTwice) {
  const Trained plain = trained(model_, {});
  for (const auto& [block, runs] : plain.runs) EXPECT_EQ(runs, 1) << block;
  for (const int64_t segment : {1, 2, 0}) {
    SCOPED_TRACE(segment);
    const Trained found = trained(model_, {.what = Again::blocks, .segment = segment});
    expect_bits(found, plain);
    if (segment == 1) EXPECT_EQ(found.counts.segments, model_.blocks);
    EXPECT_EQ(found.counts.again, found.counts.segments);
    // Groups of SwinIR are not segments, their blocks are.
    for (const auto& [block, runs] : found.runs) EXPECT_EQ(runs, has_groups() ? 1 : 2) << block;
  }
}

TEST_P(RecomputeModels, AttentionAndMatmulsAreBitEqual) {
  const Trained plain = trained(model_, {});
  const Trained attention = trained(model_, {.what = Again::attention});
  expect_bits(attention, plain);
  EXPECT_EQ(attention.counts.again, model_.attentions);
  for (const auto& [block, runs] : attention.runs) EXPECT_EQ(runs, 1) << block;
  const Trained matmuls = trained(model_, {.what = Again::matmuls});
  expect_bits(matmuls, plain);
  EXPECT_EQ(matmuls.counts.again, model_.blocks);
  EXPECT_GT(matmuls.counts.kept, 0);
}

TEST_P(RecomputeModels, BlocksInHalfPrecisionAreBitEqual) {
  const Trained plain = trained(model_, {}, "bf16");
  expect_bits(trained(model_, {.what = Again::blocks, .segment = 2}, "bf16"), plain);
  expect_bits(trained(model_, {.what = Again::attention}, "bf16"), plain);
  expect_bits(trained(model_, {.what = Again::matmuls}, "bf16"), plain);
}

TEST(RecomputeOfNamedBlocks, RunsThoseTwice) {
  const SmallModel gpt = recompute_gpt("gpt");
  const Trained found = trained(
      gpt, {.blocks = {{"transformer.h.1", Again::blocks}, {"transformer.h.2", Again::attention}}});
  expect_bits(found, trained(gpt, {}));
  EXPECT_EQ(found.runs, (std::map<std::string, int>{{"transformer.h.0", 1},
                                                    {"transformer.h.1", 2},
                                                    {"transformer.h.2", 1},
                                                    {"transformer.h.3", 1}}));
  EXPECT_EQ(found.counts.again, 2);
}

// The model may go before the backward pass: what runs again owns what it uses.
TEST(RecomputeOfModels, OutlivesTheModel) {
  for (const SmallModel& given : {recompute_mlp(), recompute_vit(), recompute_swinir()}) {
    SCOPED_TRACE(given.name);
    const Trained plain = trained(given, {});
    for (const Again what : {Again::blocks, Again::attention}) {
      auto model = given.make({.seed = 3, .precision = precision("fp32")});
      const std::vector<Param> params = model->params();
      memory::Recompute again({.what = what});
      const at::Tensor value =
          loss(given.loss,
               model->forward(
                   given.input.to(at::kFloat),
                   {.training = true, .seed = 5, .step = 3, .first_sample = 4, .segments = &again}),
               given.target);
      model.reset();
      value.backward();
      for (const Param& param : params)
        EXPECT_TRUE(param.tensor.grad().equal(plain.grads.at(param.name))) << param.name;
    }
  }
}

}  // namespace
}  // namespace braid::nn
