// SPDX-License-Identifier: BSD-3-Clause
// Parts of models computed again in every layout: loss, gradients and weights after two steps have
// the bits of the same layout without, on every rank.
#include "ranks/axes.h"

namespace braid::test {
namespace {

using memory::Again;
using nn::ModelName;

struct AgainCase {
  ModelName model;
  std::string words;
  Again what = Again::blocks;
  int64_t segment = 2;
};

std::string again_text(const AgainCase& given) {
  constexpr const char* names[] = {"none", "blocks", "attention", "matmuls", "budget"};
  return fmt::format("{}_{}_{}{}", name_of(given.model), given.words,
                     names[static_cast<int>(given.what)],
                     given.what == Again::blocks ? std::to_string(given.segment) : "");
}

void expect_values(const Values& mine, const Values& plain) {
  ASSERT_EQ(mine.size(), plain.size());
  for (const auto& [name, value] : plain) EXPECT_TRUE(mine.at(name).equal(value)) << name;
}

class RecomputeLayouts : public testing::TestWithParam<AgainCase> {};

TEST_P(RecomputeLayouts, HaveTheSameBits) {
  const AgainCase& given = GetParam();
  const int64_t samples = 7;
  train::RunOptions plain = run_for({given.model, given.words}, "fp32");
  plain.train.global_batch = samples;
  if (!plain.mesh.data) plain.mesh.data = 1;
  if (!plain.mesh.shard) plain.mesh.shard = 1;
  train::RunOptions again = plain;
  again.memory.recompute = given.what;
  again.memory.segment = given.segment;
  const data::Batch batch = random_batch(plain, samples);
  on_ranks(ranks_in(plain), [&](comm::Group world) {
    SCOPED_TRACE(fmt::format("rank {} of {}", world.rank(), given.words));
    const train::Ranks ranks = ranks_of(world, plain);
    const data::Batch mine = share_of(batch, ranks.mesh.batch_rank(), ranks.mesh.batch_ranks());
    const StepOutcome expected = run_steps(plain, mine, ranks);
    const StepOutcome found = run_steps(again, mine, ranks_of(world, again));
    EXPECT_EQ(expected.recomputed, 0);
    EXPECT_GT(found.recomputed, 0);
    EXPECT_EQ(found.loss, expected.loss);
    expect_values(found.gradients, expected.gradients);
    expect_values(found.weights, expected.weights);
  });
}

const auto again_name = [](const auto& info) { return again_text(info.param); };

std::vector<AgainCase> with_one_axis() {
  std::vector<AgainCase> cases;
  for (const char* words :
       {"data1_micro2", "shard2_z1_micro2", "shard2_z2_micro2", "shard2_z3_micro2",
        "shard2_z3_keep", "tensor2", "tensor2_whole", "tensor2_overlap3", "tensor2_regather",
        "context2", "context2_ring", "context2_swap", "moe4_expert2", "moe4_expert2_full"})
    for (const AgainCase& how : {AgainCase{ModelName::gpt, words, Again::blocks, 0},
                                 AgainCase{ModelName::gpt, words, Again::attention},
                                 AgainCase{ModelName::gpt, words, Again::matmuls}})
      cases.push_back(how);
  for (const char* schedule : {"gpipe", "1f1b", "interleaved_chunks2", "zbh1", "zbv"})
    for (const AgainCase& how : {AgainCase{ModelName::gpt, "", Again::blocks, 1},
                                 AgainCase{ModelName::gpt, "", Again::matmuls}})
      cases.push_back(
          {how.model, fmt::format("pipeline2_{}_micro2", schedule), how.what, how.segment});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(OneAxis, RecomputeLayouts, testing::ValuesIn(with_one_axis()), again_name);

INSTANTIATE_TEST_SUITE_P(
    Models, RecomputeLayouts,
    testing::Values(AgainCase{ModelName::mlp, "shard2_z3"}, AgainCase{ModelName::vit, "shard2_z3"},
                    AgainCase{ModelName::vit, "tensor2_context2_ring"},
                    AgainCase{ModelName::vit, "context2_swap", Again::attention},
                    AgainCase{ModelName::llama, "tensor4", Again::blocks, 0},
                    AgainCase{ModelName::llama, "context2_shard2_z3", Again::attention},
                    AgainCase{ModelName::llama, "pipeline2_tensor2_zbh1_micro2"},
                    AgainCase{ModelName::swinir, "context2"},
                    AgainCase{ModelName::swinir, "context2_shard2_z3_micro2"},
                    AgainCase{ModelName::swinir, "tensor2_pipeline2_micro2", Again::attention},
                    AgainCase{ModelName::swinir, "context2_pipeline2_micro2"}),
    again_name);

INSTANTIATE_TEST_SUITE_P(
    Pairs, RecomputeLayouts,
    testing::Values(AgainCase{ModelName::gpt, "pipeline2_shard2_z3_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_shard2_z3_keep_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_shard2_z3_zbh1_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_shard2_z2_zbv_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_tensor2_zbv_micro2", Again::matmuls},
                    AgainCase{ModelName::gpt, "pipeline2_tensor2_regather_zbh1_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_context2_ring_micro2", Again::attention},
                    AgainCase{ModelName::gpt, "tensor2_shard2_z3_micro2", Again::blocks, 0},
                    AgainCase{ModelName::gpt, "tensor2_context2_swap", Again::matmuls},
                    AgainCase{ModelName::gpt, "data2_shard2_z3_keep", Again::blocks, 4},
                    AgainCase{ModelName::gpt, "context2_shard2_z3_ring_micro2"},
                    AgainCase{ModelName::gpt, "shard2_z3_moe4_expert2_micro2"},
                    AgainCase{ModelName::gpt, "pipeline2_moe4_expert2_zbh1_micro2"},
                    AgainCase{ModelName::gpt, "tensor2_moe4_expert2_full", Again::matmuls}),
    again_name);

}  // namespace
}  // namespace braid::test
