// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/simulate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/error.h"
#include "plan/simulate_rank.h"

namespace braid::plan {
namespace {

using Stages = std::vector<SimulatedRank>;

[[noreturn]] void name_the_stuck(const Stages& stages) {
  constexpr size_t most = 4;  // of them that are told
  std::vector<std::string> stuck;
  for (const SimulatedRank& rank : stages)
    if (!rank.done() && stuck.size() < most) stuck.push_back(rank.waits_for());
  throw CommError({.what = fmt::format("the step cannot end: {}", fmt::join(stuck, "; ")),
                   .why = "every receive needs its send, and every rank of a group its calls",
                   .fix = "check the schedule and the groups of the layout"});
}

void run_all(Stages& stages) {
  Post post;
  bool moved = true;
  size_t left = stages.size();
  while (left > 0 && moved) {
    moved = false;
    for (SimulatedRank& rank : stages) {
      if (rank.done()) continue;
      const size_t before = rank.progress();
      rank.advance(post);
      moved |= rank.done() || rank.progress() != before;
      left -= rank.done() ? 1 : 0;
    }
  }
  if (left > 0) name_the_stuck(stages);
}

double per(double amount, double seconds) { return seconds > 0 ? amount / seconds : 0; }

int64_t nodes_of(const LayoutRun& layout, const Cluster& cluster) {
  return (layout.world + cluster.gpus_per_node - 1) / cluster.gpus_per_node;
}

// Samples are read while the step before runs.
double data_wait(const LayoutRun& layout, const Cluster& cluster, const SimulateOptions& how,
                 double step) {
  if (how.sample_bytes <= 0 || cluster.host.read_bandwidth <= 0) return 0;
  const double bytes = layout.samples * how.sample_bytes;
  const double reading =
      bytes / (static_cast<double>(nodes_of(layout, cluster)) * cluster.host.read_bandwidth);
  return std::max(0.0, reading - step);
}

// The step stands still while the states are copied to the host; they are written while later steps
// run, and only what the next checkpoint would have to wait for costs more.
double checkpoint_wait(const LayoutRun& layout, const Cluster& cluster, const SimulateOptions& how,
                       double step) {
  if (how.checkpoint_every <= 0 || how.checkpoint_bytes <= 0) return 0;
  double stall = 0;
  if (cluster.host.copy_bandwidth > 0)
    stall += how.checkpoint_bytes / static_cast<double>(layout.world) / cluster.host.copy_bandwidth;
  if (cluster.host.write_bandwidth > 0) {
    const double writing = how.checkpoint_bytes / (static_cast<double>(nodes_of(layout, cluster)) *
                                                   cluster.host.write_bandwidth);
    stall += std::max(0.0, writing - how.checkpoint_every * step);
  }
  return stall / how.checkpoint_every;
}

TimeParts parts_of(const RankTimes& times) {
  const auto of = [&](Spent why) { return times.spent[static_cast<size_t>(why)]; };
  return {.forward = of(Spent::forward),
          .backward = of(Spent::backward),
          .recompute = of(Spent::recompute),
          .optimizer = of(Spent::optimizer),
          .communication = of(Spent::communication),
          .copies = of(Spent::copies),
          .bubble = of(Spent::bubble),
          .launch = of(Spent::launch)};
}

double sum_of(const TimeParts& p) {
  return p.forward + p.backward + p.recompute + p.optimizer + p.communication + p.copies +
         p.bubble + p.launch + p.data + p.checkpoint;
}

std::map<std::string, double> by_operator(const Program& program) {
  std::map<std::string, double> sums;
  for (size_t i = 0; i < program.ops.size(); ++i)
    if (program.ops[i].seconds > 0)
      sums[program.run->trace.operators[i].name] += program.ops[i].seconds;
  return sums;
}

void add_rates(StepTime& time, const LayoutRun& layout, const Cluster& cluster) {
  time.samples_per_second = per(layout.samples, time.seconds);
  time.tokens_per_second = per(layout.tokens, time.seconds);
  time.flops_per_second = per(layout.flops, time.seconds) / static_cast<double>(layout.world);
  if (cluster.gpu.peak.empty()) return;
  const Precision policy = train::policy_of(layout.options.train);
  time.model_utilisation =
      per(time.flops_per_second, cluster.gpu.peak_of(policy.compute, policy.tf32));
}

}  // namespace

Prices prices_of(const CostModel& model) {
  return {.op = [&model](const memory::Operator& op) { return model.cost(op); },
          .message = [&model](const Message& message,
                              int rank) { return model.seconds(message, rank); },
          .copy = [&model](int64_t bytes) { return model.copy_seconds(bytes); },
          .message_host = model.cluster().gpu.launch,
          .cluster = model.cluster()};
}

StepTime simulate(const LayoutRun& layout, const CostModel& model, const SimulateOptions& how) {
  return simulate(layout, prices_of(model), how);
}

StepTime simulate(const LayoutRun& layout, const Prices& prices, const SimulateOptions& how) {
  Groups groups(layout, prices.cluster.gpus_per_node);
  std::vector<Program> programs;
  for (const RankRun& run : layout.ranks) programs.push_back(price(run, prices, groups));
  StepTime time;
  Stages stages;
  for (int stage = 0; stage < groups.stages(); ++stage) {
    const size_t kind = layout.kind_of.empty() ? 0 : layout.kind_of[static_cast<size_t>(stage)];
    stages.emplace_back(stage, programs.at(kind), groups, prices);
    if (how.timeline) stages.back().record(&time.timeline);
  }
  run_all(stages);
  const SimulatedRank& slowest =
      *std::max_element(stages.begin(), stages.end(),
                        [](const auto& a, const auto& b) { return a.times().end < b.times().end; });
  const double step = slowest.times().end;
  time.parts = parts_of(slowest.times());
  time.parts.data = data_wait(layout, prices.cluster, how, step);
  time.parts.checkpoint = checkpoint_wait(layout, prices.cluster, how, step);
  time.seconds = sum_of(time.parts);
  time.hidden_communication =
      std::max(0.0, slowest.times().transferring - time.parts.communication);
  time.host_seconds = slowest.times().host;
  time.by_operator = by_operator(slowest.program());
  add_rates(time, layout, prices.cluster);
  return time;
}

}  // namespace braid::plan
