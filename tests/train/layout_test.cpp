// SPDX-License-Identifier: BSD-3-Clause
// How a config becomes a layout, what is refused, and a slice of the layouts that tests/ranks runs
// in full.
#include "braid/train/layout.h"

#include <gtest/gtest.h>

#include "ranks/axes.h"
#include "train/run.h"

namespace braid::train {
namespace {

using nn::ModelName;
using parallel::Axis;
using test::contains;
using test::error_of;

RunOptions tiny(ModelName model, const std::string& words) { return test::run_for({model, words}); }

std::string refused(RunOptions run) {
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  const int ranks = test::ranks_in(run);
  return error_of([&] {
    check_layout(run, parallel::Mesh(run.mesh, ranks, 0, static_cast<int>(run.train.zero)));
  });
}

TEST(Layout, RefusesWhatAModelCannotSplit) {
  std::string text = refused(tiny(ModelName::mlp, "tensor2"));
  EXPECT_TRUE(contains(text, "mesh.tensor = 2 with model mlp"));
  EXPECT_TRUE(contains(text, "set mesh.tensor=1"));
  EXPECT_TRUE(contains(refused(tiny(ModelName::mlp, "context2")), "mesh.context = 2 with model"));
  EXPECT_TRUE(contains(refused(tiny(ModelName::swinir, "tensor5")),
                       "mesh.tensor = 5 does not divide model.heads"));
  text = refused(tiny(ModelName::gpt, "tensor3"));
  EXPECT_TRUE(contains(text, "mesh.tensor = 3 does not divide model.heads = 4"));
  EXPECT_TRUE(contains(text, "set mesh.tensor to one of 1, 2, 4"));
  RunOptions llama = tiny(ModelName::llama, "tensor2");
  llama.model.llama.heads = 12;
  llama.model.llama.kv_heads = 3;
  EXPECT_TRUE(contains(refused(llama), "mesh.tensor = 2 does not divide model.kv_heads = 3"));
  EXPECT_TRUE(contains(refused(tiny(ModelName::gpt, "tensor2_context4_swap")),
                       "mesh.context = 4 does not divide heads of a rank = 2"));
  EXPECT_FALSE(refused(tiny(ModelName::gpt, "context14")).empty());  // more ranks than tokens
}

TEST(Layout, RefusesExpertsThatAreNotThere) {
  EXPECT_TRUE(contains(refused(tiny(ModelName::vit, "expert2")), "it has no experts to share"));
  EXPECT_TRUE(contains(refused(tiny(ModelName::gpt, "moe4_expert3")),
                       "mesh.expert = 3 does not divide model.moe.experts = 4"));
}

TEST(Layout, RefusesBandsOfPicturesThatAreTooThin) {
  EXPECT_FALSE(refused(tiny(ModelName::swinir, "context16")).empty());
}

TEST(Layout, RefusesPipelinesThatDoNotFit) {
  std::string text = refused(tiny(ModelName::gpt, "pipeline5"));
  EXPECT_TRUE(contains(text, "mesh.pipeline = 5 makes 5 stages of the 4 blocks of gpt"));
  EXPECT_TRUE(contains(refused(tiny(ModelName::gpt, "pipeline3_zbv")), "makes 6 stages"));
  text = refused(tiny(ModelName::gpt, "pipeline2_pipedream"));
  EXPECT_TRUE(contains(text, "parallel.schedule = pipedream in a training run"));
  EXPECT_TRUE(contains(text, "braid/parallel/pipedream.h"));
  RunOptions run = tiny(ModelName::gpt, "pipeline2");
  run.parallel.split = {1, 2};
  EXPECT_TRUE(contains(refused(run), "parallel.split = [1, 2] for 2 stages of 4 blocks"));
  run.parallel.split = {4, 0};
  EXPECT_TRUE(contains(refused(run), "parallel.split = [4, 0]"));
}

TEST(Layout, RefusesAScheduleOfOtherRanks) {
  const test::TempDir dir;
  const std::string file = (dir / "own.yaml").string();
  std::ofstream(file) << parallel::to_yaml(
      parallel::make_schedule({.kind = parallel::ScheduleKind::gpipe, .ranks = 3, .micros = 2}));
  RunOptions run = tiny(ModelName::gpt, "pipeline2_micro2");
  run.parallel.schedule_file = file;
  const std::string text = refused(run);
  EXPECT_TRUE(contains(text, "is for 3 ranks and 2 micro-batches, but mesh.pipeline = 2"));
}

TEST(Layout, StagesAreOfEvenFlopsOrByHand) {
  RunOptions run = tiny(ModelName::gpt, "pipeline2");
  const parallel::Mesh mesh(run.mesh, 2, 1);
  Stages stages = stages_of(run, mesh);
  EXPECT_EQ(stages.blocks, (std::vector<Range>{{0, 2}, {2, 4}}));
  EXPECT_EQ(stages.rank_of, (std::vector<int>{0, 1}));
  run.parallel.split = {3, 1};
  stages = stages_of(run, mesh);
  EXPECT_EQ(stages.blocks, (std::vector<Range>{{0, 3}, {3, 4}}));
  EXPECT_EQ(layout_of(run, dry_ranks(mesh)).stages, (std::vector<Range>{{3, 4}}));
  run.parallel.split.clear();
  run.parallel.schedule = parallel::ScheduleKind::zb_v;
  EXPECT_EQ(stages_of(run, mesh).rank_of, (std::vector<int>{0, 1, 1, 0}));
}

TEST(Layout, GroupsFollowTheMesh) {
  RunOptions run = tiny(ModelName::gpt, "tensor2_context2_data2");
  const Ranks ranks = dry_ranks(parallel::Mesh(run.mesh, 8, 5));
  const nn::Layout layout = layout_of(run, ranks);
  EXPECT_EQ(layout.tensor.ranks(), (std::vector<int>{4, 5}));
  EXPECT_EQ(layout.context.ranks(), (std::vector<int>{5, 7}));
  EXPECT_TRUE(layout.sequence);
  EXPECT_EQ(layout.expert.size(), 1);
  const parallel::ReplicasOf replicas = ranks.replicas_of();
  const auto ranks_of_param = [&](bool expert, bool partial) {
    return replicas({.name = "w", .tensor = {}, .expert = expert, .tensor_partial = partial})
        .ranks();
  };
  EXPECT_EQ(ranks_of_param(false, false), (std::vector<int>{1, 3, 5, 7}));
  EXPECT_EQ(ranks_of_param(false, true), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(ranks.owners().ranks(), (std::vector<int>{4, 5}));
  EXPECT_EQ(ranks.copies(), 4);
}

class LayoutSlice : public testing::TestWithParam<test::AxesCase> {};

TEST_P(LayoutSlice, IsOneProcess) { test::expect_layout(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Few, LayoutSlice,
                         testing::Values(test::AxesCase{ModelName::gpt, "tensor2_pipeline2_micro2"},
                                         test::AxesCase{ModelName::vit, "tensor2_context2"},
                                         test::AxesCase{ModelName::llama,
                                                        "pipeline2_shard2_z3_micro2"},
                                         test::AxesCase{ModelName::gpt, "data2_moe4_expert2"},
                                         test::AxesCase{ModelName::swinir, "context2_data2"}),
                         [](const auto& info) { return test::case_text(info.param); });

}  // namespace
}  // namespace braid::train
