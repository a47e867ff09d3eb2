// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/layout.h"

#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <set>

#include "braid/train/life.h"
#include "braid/train/measure.h"
#include "support/dry_real.h"
#include "support/expect.h"
#include "support/small_runs.h"

namespace braid::test {
namespace {

using comm::Kind;
using nn::ModelName;

constexpr int64_t layout_mib = 1 << 20;
const plan::LayoutOptions on_cpu{.device = c10::kCPU};
const plan::LayoutOptions on_hopper{.context = 500 * layout_mib, .gemm_workspace = 32 * layout_mib};

train::RunOptions spread(ModelName model, parallel::MeshOptions mesh, int64_t zero = 0) {
  train::RunOptions run = tiny_run(model, "fp32");
  if (!mesh.data) mesh.data = 1;
  if (!mesh.shard) mesh.shard = 1;
  run.mesh = mesh;
  run.train.zero = zero;
  if (mesh.pipeline > 1) run.train.micro_batch = 1;
  return run;
}

TEST(Layout, OfOneRankIsTheMeasuredStep) {
  const train::RunOptions run = small_run(ModelName::gpt);
  const plan::LayoutRun layout = plan::dry_layout(run, 1, on_cpu);
  const train::Measured real = train::measure(run, {.dry = false});
  ASSERT_EQ(layout.ranks.size(), 1);
  const plan::RankRun& rank = layout.ranks.front();
  EXPECT_EQ(rank.name, "all");
  EXPECT_EQ(rank.memory.steady_step.peak.bytes, real.second_step.peak.bytes);
  EXPECT_EQ(rank.memory.steady_step.peak.by_kind, real.second_step.peak.by_kind);
  EXPECT_EQ(rank.trace.operators.size(), real.log.operators().size());
  EXPECT_EQ(layout.flops, real.log.flops());
  EXPECT_TRUE(rank.trace.messages.empty());
  EXPECT_EQ(layout.samples, 4);
  EXPECT_EQ(layout.tokens, 4 * 32);
}

TEST(Layout, StagesSendWhatTheNextOnesGet) {
  const train::RunOptions run = spread(ModelName::gpt, {.data = 2, .pipeline = 4});
  const plan::LayoutRun layout = plan::dry_layout(run, 8, on_cpu);
  ASSERT_EQ(layout.ranks.size(), 4);
  EXPECT_EQ(layout.kind_of, (std::vector<size_t>{0, 1, 2, 3}));
  EXPECT_EQ(layout.ranks[0].name, "first stage");
  EXPECT_EQ(layout.ranks[2].name, "stage 3");
  EXPECT_EQ(layout.ranks[3].name, "last stage");
  const auto messages = [&](size_t stage, Kind kind, int64_t peer) {
    std::vector<std::pair<int, int64_t>> all;  // tag, bytes
    for (const plan::Message& message : layout.ranks[stage].trace.messages)
      if (message.kind == kind && message.peer == peer)
        all.emplace_back(message.tag, message.bytes);
    return all;
  };
  for (size_t stage = 0; stage < 4; ++stage) {
    const plan::RankRun& rank = layout.ranks[stage];
    EXPECT_EQ(rank.stage, static_cast<int64_t>(stage));
    EXPECT_EQ(rank.like, 2);
    if (stage == 3) break;
    const plan::RankRun& next = layout.ranks[stage + 1];
    const auto sent = messages(stage, Kind::send, next.rank);
    EXPECT_EQ(sent.size(), 2) << "micro-batches";
    EXPECT_EQ(sent, messages(stage + 1, Kind::recv, rank.rank));
    EXPECT_EQ(messages(stage + 1, Kind::send, rank.rank), messages(stage, Kind::recv, next.rank));
  }
}

TEST(Layout, MessagesHaveTheirPlaceAmongTheOperators) {
  const train::RunOptions run = spread(ModelName::llama, {.shard = 2, .tensor = 2}, 3);
  const plan::LayoutRun layout = plan::dry_layout(run, 4, on_cpu);
  const plan::RankTrace& trace = layout.ranks.front().trace;
  const auto operators = static_cast<int64_t>(trace.operators.size());
  std::set<std::string> groups;
  int64_t last = 0;
  for (const plan::Message& message : trace.messages) {
    groups.insert(message.group);
    EXPECT_LE(last, message.from);
    EXPECT_LE(message.from, message.until);
    EXPECT_LE(message.until, operators);
    last = message.from;
    if (message.group == "shard") EXPECT_EQ(message.ranks, (std::vector<int>{0, 2}));
    if (message.group == "tensor") EXPECT_EQ(message.ranks, (std::vector<int>{0, 1}));
  }
  EXPECT_TRUE(groups.contains("shard") && groups.contains("tensor"));
  EXPECT_TRUE(std::any_of(trace.messages.begin(), trace.messages.end(), [](const auto& message) {
    return message.kind == Kind::all_gather && message.until > message.from;
  })) << "weights are gathered while something else is computed";
}

TEST(Layout, RegionsFollowTheStep) {
  train::RunOptions run = small_run(ModelName::gpt);
  run.train.micro_batch = 2;
  const plan::RankTrace trace = plan::dry_layout(run, 1, on_cpu).ranks.front().trace;
  std::vector<std::pair<std::string, int64_t>> found;
  for (const plan::RegionMark& region : trace.regions) {
    EXPECT_LT(region.from, region.until) << region.name;
    found.emplace_back(region.name, region.micro);
    for (int64_t i = region.from; i < region.until; ++i)
      if (region.name != "backward") EXPECT_FALSE(trace.operators[static_cast<size_t>(i)].backward);
  }
  EXPECT_EQ(
      found,
      (decltype(found){
          {"forward", 0}, {"backward", 0}, {"forward", 1}, {"backward", 1}, {"optimizer", -1}}));
}

// Sizes that no number of ranks divides: the fullest rank of a stage stands for it.
TEST(Layout, TakesTheFullestRankOfAStage) {
  for (const auto& [model, mesh, zero] :
       {std::tuple(ModelName::gpt, parallel::MeshOptions{.context = 2}, 0),
        std::tuple(ModelName::llama, parallel::MeshOptions{.tensor = 2}, 0),
        std::tuple(ModelName::gpt, parallel::MeshOptions{.shard = 2}, 3),
        std::tuple(ModelName::vit, parallel::MeshOptions{.context = 2, .pipeline = 2}, 0)}) {
    const train::RunOptions run = spread(model, mesh, zero);
    const int64_t world = 2 * mesh.pipeline;
    SCOPED_TRACE(parallel::to_text(run.mesh));
    const plan::LayoutRun layout = plan::dry_layout(run, world, on_cpu);
    for (const plan::RankRun& stage : layout.ranks) {
      int64_t most = 0;
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t rank = stage.stage * 2 + i;
        const train::Life life = train::live(run, {.world = world, .rank = rank});
        most = std::max({most, life.first_step.peak.bytes, life.step.peak.bytes,
                         life.checkpoint.peak.bytes, life.evaluation.peak.bytes});
      }
      EXPECT_EQ(stage.memory.peak.bytes, most) << stage.name;
    }
  }
}

TEST(Layout, OfAGpuHasWorkspacesSegmentsAndBuffers) {
  train::RunOptions run = small_run(ModelName::gpt, "bf16");
  run.mesh.data = 2;
  const plan::RankMemory memory = plan::dry_layout(run, 2, on_hopper).ranks.front().memory;
  EXPECT_EQ(memory.workspace, (2 * 32 + 1) * layout_mib)
      << "cuBLAS on the thread that computes and on autograd's, cuBLASLt on the first";
  EXPECT_EQ(memory.steady_step.allocated, memory.steady_step.peak.bytes + memory.workspace);
  EXPECT_GT(memory.reserved, memory.steady_step.allocated);
  plan::LayoutOptions fixed = on_hopper;
  fixed.expandable = false;
  EXPECT_LT(plan::dry_layout(run, 2, fixed).ranks.front().memory.reserved, memory.reserved)
      << "workspaces of 32 MiB are no multiple of pages of 20";
  EXPECT_EQ(memory.reserved % (2 * layout_mib), 0);
  EXPECT_GT(memory.nccl, 0);
  EXPECT_EQ(memory.context, 500 * layout_mib);
  EXPECT_EQ(memory.device(), memory.reserved + memory.nccl + memory.context);
  run.mesh.data = 1;
  EXPECT_EQ(plan::dry_layout(run, 1, on_hopper).ranks.front().memory.nccl, 0);
}

TEST(Layout, OfAGpuCountsTheHost) {
  const train::RunOptions plain = small_run(ModelName::gpt);
  const plan::LayoutRun kept = plan::dry_layout(plain, 1, on_hopper);
  EXPECT_GE(kept.ranks.front().memory.pinned, 3 * 4 * kept.parameters)
      << "a checkpoint's copy of weights and both moments";
  EXPECT_LT(kept.ranks.front().memory.pinned, 3 * 4 * kept.parameters + 64 * 1024);
  train::RunOptions away = plain;
  away.memory = memory_words("optimizer_activations");
  const plan::RankRun moved = plan::dry_layout(away, 1, on_hopper).ranks.front();
  EXPECT_GT(moved.memory.host, kept.ranks.front().memory.host);
  EXPECT_LT(moved.memory.peak.bytes, kept.ranks.front().memory.peak.bytes);
  const auto copies = [&](bool to_host) {
    return std::count_if(moved.trace.copies.begin(), moved.trace.copies.end(),
                         [&](const plan::Copy& copy) {
                           return copy.to_host == to_host && copy.beside && copy.bytes > 0;
                         });
  };
  EXPECT_GT(copies(true), 0);
  EXPECT_GT(copies(false), 0);
  EXPECT_TRUE(kept.ranks.front().trace.copies.empty());
}

TEST(Layout, AFullerRankOfExpertsTakesMore) {
  train::RunOptions run = spread(ModelName::llama, {.expert = 2});
  run.model.llama.moe.experts = 4;
  const auto exchanged = [&](double load) {
    const plan::LayoutRun layout =
        plan::dry_layout(run, 2, {.device = c10::kCPU, .expert_load = {1.0, load}});
    double bytes = 0;
    for (const plan::Message& message : layout.ranks.front().trace.messages)
      if (message.kind == Kind::all_to_all) bytes += static_cast<double>(message.bytes);
    return std::pair(layout.ranks.front().memory.peak.bytes, bytes);
  };
  const auto even = exchanged(1), full = exchanged(1.5);
  EXPECT_GT(full.first, even.first);
  EXPECT_NEAR(full.second / even.second, 1.5, 0.05);
}

void no_kernel(const c10::OperatorHandle&, torch::jit::Stack*) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, "no kernel");
}

TEST(Layout, StopsAtAnOperatorWithoutAMetaKernel) {
  torch::Library without(torch::Library::IMPL, "aten", c10::DispatchKey::Meta, __FILE__, __LINE__);
  without.impl("addmm", torch::CppFunction::makeFromBoxedFunction<&no_kernel>());
  const std::string text = error_of([] { plan::dry_layout(small_run(ModelName::vit), 1, on_cpu); });
  EXPECT_TRUE(contains(text, "aten::addmm without a Meta kernel")) << text;
  EXPECT_TRUE(contains(text, "patch_embed")) << "and its module";
}

TEST(Layout, RefusesWhatTheTrainerRefuses) {
  const std::string text =
      error_of([] { plan::dry_layout(spread(ModelName::gpt, {.pipeline = 8}), 8, on_cpu); });
  EXPECT_TRUE(contains(text, "8")) << text;
  EXPECT_TRUE(contains(text, "fix")) << text;
}

}  // namespace
}  // namespace braid::test
