// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "braid/core/error.h"
#include "braid/memory/instruments.h"
#include "braid/nn/model.h"
#include "braid/train/layout.h"
#include "braid/train/life.h"
#include "plan/layout_memory.h"

namespace braid::plan {
namespace {

using parallel::Axis;

RankTrace trace_of(train::Life& life) {
  RankTrace trace;
  trace.operators = life.log.operators();
  for (const comm::TrafficEntry& entry : life.messages)
    trace.messages.push_back({.kind = entry.kind,
                              .group = entry.group,
                              .ranks = *entry.ranks,
                              .peer = entry.peer,
                              .tag = entry.tag,
                              .bytes = entry.bytes,
                              .wire_bytes = entry.wire_bytes,
                              .from = entry.from,
                              .until = std::max(entry.from, entry.until)});
  std::stable_sort(trace.messages.begin(), trace.messages.end(),
                   [](const Message& a, const Message& b) { return a.from < b.from; });
  for (size_t i = 0; i < trace.operators.size(); ++i) {
    const memory::Operator& op = trace.operators[i];
    if (op.on != memory::RunsOn::to_host && op.on != memory::RunsOn::to_device) continue;
    trace.copies.push_back({.op = static_cast<int64_t>(i),
                            .bytes = op.outputs.empty() ? 0 : op.outputs.front().bytes(),
                            .to_host = op.on == memory::RunsOn::to_host,
                            .beside = op.name == "aten::copy_"});
  }
  int64_t micro = -1;
  for (train::LifeRegion& region : life.regions) {
    micro += region.name == "forward" ? 1 : 0;
    trace.regions.push_back({.name = std::move(region.name),
                             .micro = micro,
                             .from = region.from,
                             .until = region.until});
    if (trace.regions.back().name == "optimizer") trace.regions.back().micro = -1;
  }
  return trace;
}

std::string stage_name(int64_t stage, int64_t stages) {
  if (stages == 1) return "all";
  if (stage == 0) return "first stage";
  return stage == stages - 1 ? "last stage" : fmt::format("stage {}", stage + 1);
}

RankRun run_rank(const train::RunOptions& options, int64_t world, int64_t rank,
                 const LayoutOptions& how) {
  RankRun run;
  run.rank = rank;
  MemoryOfLife memory(options, how);
  train::Life life =
      train::live(options, {.device = how.device, .world = world, .rank = rank},
                  {.trace = how.trace,
                   .evaluation = how.evaluation,
                   .expert_load = *std::max_element(how.expert_load.begin(), how.expert_load.end()),
                   .after = [&](std::string_view part, const memory::Ledger& ledger,
                                const train::Life& so_far) { memory.add(part, ledger, so_far); }});
  run.memory = memory.finish(life);
  if (how.trace) run.trace = trace_of(life);
  return run;
}

// Of a stage: its first rank, and its last one where that holds or works on something else. The
// fuller one stands for all.
RankRun run_stage(const train::RunOptions& options, const parallel::Mesh& mesh, int64_t first,
                  const LayoutOptions& how) {
  const parallel::Mesh there(options.mesh, mesh.world(), first,
                             static_cast<int>(options.train.zero));
  const int64_t last =
      there.ranks_of({Axis::data, Axis::shard, Axis::tensor, Axis::context, Axis::expert}).back();
  RankRun run = run_rank(options, mesh.world(), first, how);
  if (last == first) return run;
  const auto shapes = [&](int64_t rank) {
    return train::shapes_of_rank(options,
                                 {.device = how.device, .world = mesh.world(), .rank = rank});
  };
  if (shapes(first) == shapes(last)) return run;
  RankRun other = run_rank(options, mesh.world(), last, how);
  return other.memory.device() > run.memory.device() ? std::move(other) : std::move(run);
}

int64_t parameters_of(const train::RunOptions& options) {
  const memory::Instruments on({.dry = true});
  const auto model = nn::make_model(options.model, {.precision = train::policy_of(options.train)});
  int64_t count = 0;
  for (const Param& param : model->params()) count += param.tensor.numel();
  return count;
}

double tokens_of_sample(const train::RunOptions& options) {
  const data::Batch one = train::empty_batch(options, 1, c10::kCPU);
  return one.input.scalar_type() == c10::kLong ? static_cast<double>(one.input.numel()) : 0;
}

double flops_of_rank(const RankRun& run) {
  double flops = 0;
  for (const memory::Operator& op : run.trace.operators) flops += op.recomputed ? 0 : op.flops;
  return flops * static_cast<double>(run.like);
}

}  // namespace

LayoutRun dry_layout(const train::RunOptions& options, int64_t world, const LayoutOptions& how) {
  const auto start = std::chrono::steady_clock::now();
  const parallel::Mesh mesh(options.mesh, world, 0, static_cast<int>(options.train.zero));
  train::check_layout(options, mesh);
  LayoutRun layout;
  layout.options = options;
  layout.world = world;
  const std::vector<int> firsts = mesh.ranks_of({Axis::pipeline});
  const auto stages = static_cast<int64_t>(firsts.size());
  for (int64_t stage = 0; stage < stages; ++stage) {
    RankRun run = run_stage(options, mesh, firsts[static_cast<size_t>(stage)], how);
    run.stage = stage;
    run.like = world / stages;
    run.name = stage_name(stage, stages);
    layout.flops += flops_of_rank(run);
    layout.kind_of.push_back(layout.ranks.size());
    layout.ranks.push_back(std::move(run));
  }
  layout.parameters = parameters_of(options);
  layout.samples = static_cast<double>(train::global_batch_of(options.train, mesh.batch_ranks()));
  layout.tokens = layout.samples * tokens_of_sample(options);
  layout.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return layout;
}

}  // namespace braid::plan
