// SPDX-License-Identifier: BSD-3-Clause
#include "plan/search_evaluate.h"

#include <algorithm>

#include "braid/data/options.h"
#include "braid/train/layout.h"
#include "braid/train/measure.h"
#include "plan/space_bound.h"
#include "plan/space_run.h"

namespace braid::plan {
namespace {

// Bytes of a sample in its files.
double file_bytes(const train::RunOptions& options) {
  const data::Batch one = train::empty_batch(options, 1, c10::kMeta);
  switch (options.data.kind) {
    case data::Kind::tokens:
      return static_cast<double>(one.input.numel() * options.data.token_bytes);
    case data::Kind::text:
      return static_cast<double>(one.input.numel());
    case data::Kind::frames:  // input and target are two of them
      return static_cast<double>(one.input.nbytes() + one.target.nbytes());
    case data::Kind::crops:  // the fine one; the coarse one is made of it
      return static_cast<double>(one.target.nbytes());
    case data::Kind::spiral:
    case data::Kind::synthetic:
      break;
  }
  return 0;
}

// Of weights and states: each is held once by the ranks that do not repeat each other.
double saved_bytes(const LayoutRun& layout) {
  const parallel::Mesh mesh(layout.options.mesh, layout.world, 0,
                            static_cast<int>(layout.options.train.zero));
  const auto copies =
      static_cast<double>(mesh.size(parallel::Axis::data) * mesh.size(parallel::Axis::context));
  double bytes = 0;
  for (const RankRun& rank : layout.ranks)
    for (const MemoryKind kind :
         {MemoryKind::parameter, MemoryKind::optimizer_state, MemoryKind::master_weight})
      bytes += static_cast<double>(rank.memory.steady_step.peak.by_kind[static_cast<size_t>(kind)] *
                                   rank.like);
  return bytes / copies;
}

void add_peaks(Plan& plan, const LayoutRun& layout) {
  for (const RankRun& rank : layout.ranks) {
    const RankMemory& memory = rank.memory;
    plan.peaks.push_back({.name = rank.name,
                          .bytes = memory.peak.bytes,
                          .reserved = memory.reserved,
                          .device = memory.device(),
                          .host = memory.host,
                          .by_kind = memory.peak.by_kind,
                          .moment = memory.moment,
                          .module = memory.peak.module});
    plan.peak_bytes = std::max(plan.peak_bytes, memory.device());
  }
}

bool fits(const Plan& plan, int64_t room, const Cluster& cluster, int64_t gpus) {
  int64_t host = 0;
  for (const RankPeak& peak : plan.peaks) host = std::max(host, peak.host);
  return plan.peak_bytes <= room && host_holds(cluster, gpus, host);
}

}  // namespace

const CostModel& Evaluator::costs(const train::RunOptions& options, int64_t gpus) {
  const std::pair kind(policy_of(options.train).tf32, train::replays_steps(options, gpus));
  const auto known = costs_.find(kind);
  if (known != costs_.end()) return known->second;
  return costs_.emplace(kind, cost_model(request_.cluster, options, gpus)).first->second;
}

LayoutRun Evaluator::run(const train::RunOptions& options, int64_t gpus, bool trace) {
  ++dry_runs_;
  const bool evaluated = data::has_split(options.data, data::Split::valid) ||
                         data::has_split(options.data, data::Split::test);
  return quick_layout(options, gpus,
                      {.trace = trace,
                       .evaluation = evaluated,
                       .context = request_.cluster.gpu.context.count,
                       .gemm_workspace = request_.cluster.gpu.gemm_workspace.count});
}

Plan Evaluator::memory(const train::RunOptions& options, int64_t gpus) {
  Plan plan;
  plan.choice = resolved_choice(options, gpus);
  plan.options = options;
  add_peaks(plan, run(options, gpus, false));
  plan.fits = fits(plan, base_.room, request_.cluster, gpus);
  return plan;
}

Plan Evaluator::plan(const train::RunOptions& options, int64_t gpus, bool timeline) {
  Plan plan;
  plan.choice = resolved_choice(options, gpus);
  plan.options = options;
  const LayoutRun layout = run(options, gpus, true);
  add_peaks(plan, layout);
  plan.fits = fits(plan, base_.room, request_.cluster, gpus);
  SimulateOptions how{.timeline = timeline, .sample_bytes = file_bytes(options)};
  how.checkpoint_every = static_cast<double>(options.checkpoint.every);
  how.checkpoint_bytes = saved_bytes(layout);
  plan.time = simulate(layout, costs(options, gpus), how);
  if (options.train.steps > 0)
    plan.gpu_hours = static_cast<double>(options.train.steps) * plan.time.seconds *
                     static_cast<double>(gpus) / 3600;
  return plan;
}

Plan Evaluator::plan(const Choice& choice, bool timeline) {
  Plan made = plan(apply(base_.options, choice), request_.gpus, timeline);
  made.choice = choice;
  return made;
}

Choice resolved_choice(const train::RunOptions& options, int64_t gpus) {
  const parallel::Mesh mesh(options.mesh, gpus, 0, static_cast<int>(options.train.zero));
  const int64_t ranks = mesh.batch_ranks();
  const int64_t rows = (global_batch_of(options.train, ranks) + ranks - 1) / ranks;
  Choice choice;
  choice.mesh = mesh.sizes();
  choice.zero = options.train.zero;
  choice.recompute = options.memory.recompute;
  choice.micro_batch = std::min(options.train.micro_batch.value_or(rows), rows);
  if (choice.micro_batch < 1) choice.micro_batch = rows;
  choice.schedule = options.parallel.schedule;
  choice.offload = options.memory.offload;
  return choice;
}

}  // namespace braid::plan
