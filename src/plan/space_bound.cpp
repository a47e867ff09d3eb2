// SPDX-License-Identifier: BSD-3-Clause
#include "plan/space_bound.h"

#include <algorithm>
#include <numeric>

#include "braid/train/layout.h"

namespace braid::plan {
namespace {

using parallel::Axis;
using parallel::ScheduleKind;

constexpr double rounding = 1 + 1e-9;  // bounds and values are sums in another order
constexpr double waves = 0.9;          // parts of a kernel may fill the GPU better than the whole

bool offloaded(const Choice& choice, const char* what) {
  return std::find(choice.offload.begin(), choice.offload.end(), what) != choice.offload.end();
}

bool splits_backward(ScheduleKind kind) {
  return kind == ScheduleKind::zb_h1 || kind == ScheduleKind::zb_h2 || kind == ScheduleKind::zb_v;
}

double total(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

// Weights, gradients and states of a rank, as ZeRO and the host leave them.
struct States {
  double weights = 0, optimizer = 0, gradients = 0;
};
States states_of(const Footprint& whole, const Choice& choice) {
  const auto shard = static_cast<double>(choice.zero > 0 ? choice.mesh.shard.value_or(1) : 1);
  States states;
  states.weights = states.gradients = static_cast<double>(whole.weights);
  states.optimizer = static_cast<double>(whole.states);
  if (choice.zero >= 1) states.optimizer /= shard;
  if (choice.zero >= 2) states.gradients /= shard;
  if (choice.zero >= 3) states.weights /= shard;
  if (offloaded(choice, "optimizer")) states.optimizer = states.gradients = 0;
  if (offloaded(choice, "parameters")) states.weights = 0;
  return states;
}

}  // namespace

Bounds::Bounds(const Request& request, const Base& base) : request_(request), base_(base) {
  for (const Arrangement& placed : arrangements_of(request, base).all)
    largest_ = std::max(largest_, placed.rows);
}

int64_t Bounds::rows_of(const Choice& choice) const {
  return base_.batch /
         (choice.mesh.data.value_or(1) * choice.mesh.shard.value_or(1) * choice.mesh.expert);
}

// The share of a choice in the largest micro-batch on one GPU.
Unit Bounds::part_of_largest(const Choice& choice, Level level) {
  Choice one = choice;
  one.mesh.tensor = one.mesh.context = one.mesh.expert = 1;
  const Unit& whole = unit(one, {.micro = largest_});
  const auto micro = static_cast<double>(choice.micro_batch);
  const double share = waves * micro / static_cast<double>(largest_) /
                       static_cast<double>(choice.mesh.tensor * choice.mesh.context);
  Unit part;
  for (const double seconds : whole.forward) part.forward.push_back(share * seconds);
  for (const double seconds : whole.backward) part.backward.push_back(share * seconds);
  const bool spread = choice.mesh.tensor * choice.mesh.context * choice.mesh.expert > 1;
  if (level == Level::kernels || !spread) return part;
  double waited = 0;
  for (Message message : unit(choice, {}).waited) {
    message.bytes *= choice.micro_batch;
    waited += costs(choice).seconds(message);
  }
  for (double& seconds : part.forward) seconds += waited / static_cast<double>(part.forward.size());
  return part;
}

// Of a micro-batch: whole blocks computed again, at the peak of the GPU. Of other parts too little
// is certain.
double Bounds::again_seconds(const Choice& choice) {
  if (choice.recompute != memory::Again::blocks) return 0;
  Choice one = choice;
  one.mesh.tensor = one.mesh.context = one.mesh.expert = 1;
  const Precision policy = policy_of(apply(base_.options, choice).train);
  const double peak = request_.cluster.gpu.peak_of(policy.compute, policy.tf32);
  return waves * unit(one, {.recompute = choice.recompute}).again / peak *
         static_cast<double>(choice.micro_batch) /
         static_cast<double>(choice.mesh.tensor * choice.mesh.context);
}

// No rank of a pipeline is done before its own work and the way of the first micro-batch to it and
// of the last one's gradient back.
double Bounds::pipeline_seconds(const Choice& choice, const Unit& unit, int64_t micros) {
  const auto pipeline = choice.mesh.pipeline;
  const auto key = std::pair(pipeline, static_cast<int>(choice.schedule));
  auto known = stages_.find(key);
  if (known == stages_.end()) {
    Choice alone = choice;
    alone.mesh.tensor = alone.mesh.context = alone.mesh.expert = 1;
    alone.mesh.data = alone.mesh.shard = 1;
    alone.zero = 0;
    train::RunOptions options = apply(base_.options, alone);
    options.train.global_batch = options.train.micro_batch.value_or(1);  // one is enough to know
    const train::Stages stages = stages_of(options, parallel::Mesh(options.mesh, pipeline, 0));
    known = stages_.emplace(key, std::pair(stages.blocks, stages.rank_of)).first;
  }
  const auto& [blocks, rank_of] = known->second;
  const bool split = splits_backward(choice.schedule);
  std::vector<double> work(static_cast<size_t>(pipeline), 0), way(work.size(), -1);
  double before = 0, naive = 0;
  for (size_t stage = 0; stage < blocks.size(); ++stage) {
    double forward = 0, backward = 0;
    for (int64_t i = blocks[stage].begin; i < blocks[stage].end; ++i) {
      forward += unit.forward[static_cast<size_t>(i)];
      backward += unit.backward[static_cast<size_t>(i)];
    }
    const auto rank = static_cast<size_t>(rank_of[stage]);
    work[rank] += static_cast<double>(micros) * (forward + backward);
    if (way[rank] < 0) way[rank] = before;
    before += forward + (split ? 0 : backward);
    naive += static_cast<double>(micros) * (forward + backward);
  }
  if (choice.schedule == ScheduleKind::naive) return naive;
  double longest = 0;
  for (size_t rank = 0; rank < work.size(); ++rank)
    longest = std::max(longest, work[rank] + way[rank]);
  return longest;
}

// Seconds that gradients, and weights in pieces, are on their way.
double Bounds::traffic_seconds(const Choice& choice, int64_t micros) {
  const int64_t pipeline = choice.mesh.pipeline;
  const parallel::Mesh mesh(choice.mesh, request_.gpus, 0, static_cast<int>(choice.zero));
  const Precision policy = policy_of(apply(base_.options, choice).train);
  const int64_t weights = footprint(choice, {}).weights / pipeline;
  const auto sized = [&](c10::ScalarType dtype) {
    return weights / static_cast<int64_t>(c10::elementSize(policy.param)) *
           static_cast<int64_t>(c10::elementSize(dtype));
  };
  const auto seconds = [&](comm::Kind kind, const parallel::Axes& axes, int64_t bytes) {
    Message message;
    message.kind = kind;
    message.ranks = mesh.ranks_of(axes);
    message.bytes = bytes;
    return message.ranks.size() > 1 ? costs(choice).seconds(message) : 0.0;
  };
  if (train::experts_of(base_.options.model) > 0) return 0;  // experts have other replicas
  if (choice.zero == 0) return seconds(comm::Kind::all_reduce, {Axis::data}, sized(policy.reduce));
  const double grads = seconds(comm::Kind::reduce_scatter, {Axis::shard}, sized(policy.reduce));
  const double gather = seconds(comm::Kind::all_gather, {Axis::shard}, sized(policy.param));
  const auto times = static_cast<double>(micros);
  if (choice.zero == 1) return grads + gather;
  return choice.zero == 2 ? times * grads + gather : times * (grads + gather);
}

double Bounds::step_seconds(const Choice& choice, const Unit& one, int64_t micros) {
  const auto times = static_cast<double>(micros);
  const auto shard = static_cast<double>(choice.zero > 0 ? choice.mesh.shard.value_or(1) : 1);
  if (choice.mesh.pipeline > 1) {
    Unit with = one;  // what is computed again stands in the blocks alike
    const double again = again_seconds(choice) / static_cast<double>(with.backward.size());
    for (double& seconds : with.backward) seconds += again;
    return pipeline_seconds(choice, with, micros);
  }
  const double update = one.optimizer / shard;  // on the host it takes no less
  const double kernels =
      times * (total(one.forward) + total(one.backward) + again_seconds(choice)) + update;
  return std::max(kernels, times * one.host);
}

double Bounds::throughput(const Choice& choice, Level level) {
  const int64_t micros = rows_of(choice) / choice.micro_batch;
  double seconds = level == Level::exact
                       ? step_seconds(choice, unit(choice, {.micro = choice.micro_batch}), micros)
                       : step_seconds(choice, part_of_largest(choice, level), micros);
  if (level != Level::kernels) seconds = std::max(seconds, traffic_seconds(choice, micros));
  return static_cast<double>(base_.batch) / seconds * rounding;
}

// On the line through one and two samples.
Footprint Bounds::footprint_at(const Choice& choice) {
  const Asked first{.recompute = choice.recompute, .stashed = offloaded(choice, "activations")};
  Footprint line = footprint(choice, first);
  if (choice.micro_batch == 1) return line;
  Asked second = first;
  second.micro = 2;
  const int64_t more = footprint(choice, second).rest - line.rest;
  line.rest += (choice.micro_batch - 1) * std::max<int64_t>(more, 0);
  return line;
}

int64_t Bounds::memory(const Choice& choice) {
  const Footprint whole = footprint_at(choice);
  const States states = states_of(whole, choice);
  const double held = states.weights + states.optimizer;
  // From the second pass on, gradients are there all the time.
  const bool several = rows_of(choice) > choice.micro_batch && choice.mesh.pipeline == 1;
  const double passing = held + static_cast<double>(whole.rest) + (several ? states.gradients : 0);
  // The fullest rank of a pipeline holds no less than the average.
  const double most =
      std::max(held + states.gradients, passing) / static_cast<double>(choice.mesh.pipeline);
  return static_cast<int64_t>(most) + request_.cluster.gpu.context.count;
}

}  // namespace braid::plan
