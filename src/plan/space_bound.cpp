// SPDX-License-Identifier: BSD-3-Clause
#include "plan/space_bound.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "braid/core/deadline.h"
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

// Of each rank: most micro-batches of its stages between forward and backward pass.
std::vector<int> most_waiting(const parallel::Schedule& schedule) {
  std::vector<int> most;
  for (const std::vector<parallel::Action>& list : schedule.lists) {
    int now = 0, highest = 0;
    for (const parallel::Action& action : list) {
      using parallel::Act;
      if (action.act == Act::forward) highest = std::max(highest, ++now);
      if (action.act == Act::backward || action.act == Act::input_backward) --now;
    }
    most.push_back(highest);
  }
  return most;
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
    waited += waves * least_seconds(costs(choice), message);
  }
  for (double& seconds : part.forward) seconds += waited / static_cast<double>(part.forward.size());
  return part;
}

// Of a micro-batch: whole blocks computed again, at the peak of the GPU. Of other parts too little
// is certain.
std::vector<double> Bounds::again_seconds(const Choice& choice) {
  Choice one = choice;
  one.mesh.tensor = one.mesh.context = one.mesh.expert = 1;
  const Precision policy = policy_of(apply(base_.options, choice).train);
  const double peak = request_.cluster.gpu.peak_of(policy.compute, policy.tf32);
  const double share = waves / peak * static_cast<double>(choice.micro_batch) /
                       static_cast<double>(choice.mesh.tensor * choice.mesh.context);
  std::vector<double> seconds = unit(one, {.recompute = choice.recompute}).again;
  for (double& each : seconds) each *= share;
  return seconds;
}

const Bounds::StageMap& Bounds::stages(const Choice& choice) {
  const auto [known, fresh] =
      stages_.try_emplace({choice.mesh.pipeline, static_cast<int>(choice.schedule)});
  if (!fresh) return known->second;
  Choice one = choice;
  one.mesh.tensor = one.mesh.context = one.mesh.expert = 1;
  one.mesh.data = one.mesh.shard = 1;
  one.zero = 0;
  train::RunOptions options = apply(base_.options, one);
  options.train.global_batch = options.train.micro_batch.value_or(1);  // one pass: the same stages
  const train::Stages made =
      stages_of(options, parallel::Mesh(options.mesh, choice.mesh.pipeline, 0));
  return known->second = {.blocks = made.blocks, .rank_of = made.rank_of};
}

// No rank of a pipeline is done before its own work and the way of the first micro-batch to it and
// of the last one's gradient back.
double Bounds::pipeline_seconds(const Choice& choice, const Unit& unit, int64_t micros) {
  const auto pipeline = choice.mesh.pipeline;
  const auto& [blocks, rank_of] = stages(choice);
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

// Bytes of the weights whose gradients are summed over replicas of the rank alone: others, which
// all ranks of tensor hold, are summed over these as well, on other links.
int64_t Bounds::summed_weights(const Choice& choice) {
  const int64_t tensor = choice.mesh.tensor, own = footprint(choice, {}).weights;
  if (tensor == 1) return own;
  Choice one = choice;
  one.mesh.tensor = 1;
  return std::max<int64_t>(0, footprint(one, {}).weights - own) / (tensor - 1);
}

// Seconds that gradients, and weights in pieces, are on their way.
double Bounds::traffic_seconds(const Choice& choice, int64_t micros) {
  const int64_t pipeline = choice.mesh.pipeline;
  if (train::experts_of(base_.options.model) > 0) return 0;  // experts have other replicas
  const Precision policy = policy_of(apply(base_.options, choice).train);
  const int64_t weights =
      (choice.zero == 0 ? summed_weights(choice) : footprint(choice, {}).weights) / pipeline;
  const auto sized = [&](c10::ScalarType dtype) {
    return weights / static_cast<int64_t>(c10::elementSize(policy.param)) *
           static_cast<int64_t>(c10::elementSize(dtype));
  };
  const parallel::Mesh whole(choice.mesh, request_.gpus, 0, static_cast<int>(choice.zero));
  const std::vector<int> stages = whole.ranks_of({Axis::pipeline});
  // Of the stage whose ranks lie best: they need not fill nodes.
  const auto seconds = [&](comm::Kind kind, const parallel::Axes& axes, int64_t bytes) {
    double least = std::numeric_limits<double>::max();
    for (const int rank : stages) {
      const parallel::Mesh mesh(choice.mesh, request_.gpus, rank, static_cast<int>(choice.zero));
      const Message message{
          .kind = kind, .group = {}, .ranks = mesh.ranks_of(axes), .bytes = bytes};
      if (message.ranks.size() < 2) return 0.0;
      least = std::min(least, costs(choice).seconds(message));
    }
    return least;
  };
  if (choice.zero == 0 && choice.mesh.data.value_or(1) == 1) return 0;
  if (choice.zero == 0)
    return seconds(comm::Kind::all_reduce, {Axis::data, Axis::context}, sized(policy.reduce));
  const double grads = seconds(comm::Kind::reduce_scatter, {Axis::shard}, sized(policy.reduce));
  const double gather = seconds(comm::Kind::all_gather, {Axis::shard}, sized(policy.param));
  const auto times = static_cast<double>(micros);
  if (choice.zero == 1) return grads + gather;
  return choice.zero == 2 ? times * grads + gather : times * (grads + gather);
}

// Seconds that the host's link is busy in one direction: it takes one copy after the other.
double Bounds::copy_seconds(const Choice& choice, int64_t micros) {
  double seconds = 0;
  const auto share = [&](double bytes) {
    return static_cast<int64_t>(bytes / static_cast<double>(choice.mesh.pipeline));
  };
  if (offloaded(choice, "activations")) {
    const auto sample = static_cast<double>(unit(choice, {.stashed = true}).to_host);
    const double pass = sample * static_cast<double>(choice.micro_batch);
    seconds += static_cast<double>(micros) * costs(choice).copy_seconds(share(pass));
  }
  if (offloaded(choice, "optimizer") && !offloaded(choice, "parameters")) {
    const auto shard = static_cast<double>(choice.zero > 0 ? choice.mesh.shard.value_or(1) : 1);
    const auto grads = static_cast<double>(footprint(choice, {}).weights) / shard;
    seconds = std::max(seconds, costs(choice).copy_seconds(share(grads)));
  }
  return seconds;
}

double Bounds::step_seconds(const Choice& choice, const Unit& one, int64_t micros) {
  const auto times = static_cast<double>(micros);
  const auto shard = static_cast<double>(choice.zero > 0 ? choice.mesh.shard.value_or(1) : 1);
  Unit with = one;
  if (choice.recompute == memory::Again::blocks) {
    const std::vector<double> again = again_seconds(choice);
    for (size_t i = 0; i < again.size(); ++i) with.backward[i] += again[i];
  }
  if (choice.mesh.pipeline > 1) return pipeline_seconds(choice, with, micros);
  const double update = one.optimizer / shard;  // on the host it takes no less
  const double kernels = times * (total(with.forward) + total(with.backward)) + update;
  return std::max(kernels, times * one.host);
}

double Bounds::throughput(const Choice& choice, Level level) {
  const int64_t micros = rows_of(choice, base_) / choice.micro_batch;
  const Asked own{.micro = choice.micro_batch, .once = micros == 1};
  double seconds = level == Level::exact
                       ? step_seconds(choice, unit(choice, own), micros)
                       : step_seconds(choice, part_of_largest(choice, level), micros);
  if (level != Level::kernels)
    seconds = std::max({seconds, traffic_seconds(choice, micros), copy_seconds(choice, micros)});
  return static_cast<double>(base_.batch) / seconds * rounding;
}

// Of the fullest rank: what its stages keep for the micro-batches that wait for their backward
// pass.
double Bounds::kept_in_flight(const Choice& choice, const Footprint& whole) {
  const int64_t micros = rows_of(choice, base_) / choice.micro_batch;
  const StageMap& map = stages(choice);
  const std::tuple key(choice.mesh.pipeline, static_cast<int>(choice.schedule), micros);
  auto known = in_flight_.find(key);
  if (known == in_flight_.end()) {
    check_deadline();
    std::vector<int> most = most_waiting(
        train::schedule_of(apply(base_.options, choice), choice.mesh.pipeline, micros));
    known = in_flight_.emplace(key, std::move(most)).first;
  }
  const std::vector<int>& waiting = known->second;
  std::vector<int64_t> smallest(waiting.size(), std::numeric_limits<int64_t>::max());
  for (size_t stage = 0; stage < map.blocks.size(); ++stage) {
    int64_t kept = 0;
    for (int64_t i = map.blocks[stage].begin; i < map.blocks[stage].end; ++i)
      kept += whole.kept[static_cast<size_t>(i)];
    int64_t& least = smallest[static_cast<size_t>(map.rank_of[stage])];
    least = std::min(least, kept);
  }
  double most = 0;
  for (size_t rank = 0; rank < waiting.size(); ++rank)
    most = std::max(most, static_cast<double>(waiting[rank]) * static_cast<double>(smallest[rank]));
  return most;
}

Bounds::Passing Bounds::passing_of(const Choice& choice) {
  return {choice.mesh.tensor,
          choice.mesh.context,
          choice.mesh.expert,
          choice.mesh.pipeline,
          choice.micro_batch,
          static_cast<int>(choice.schedule),
          static_cast<int>(choice.recompute),
          choice.precision,
          offloaded(choice, "activations")};
}

void Bounds::learn(const Choice& choice, const Plan& plan) {
  int64_t& known = learnt_[passing_of(choice)];
  for (const RankPeak& peak : plan.peaks) {
    const auto of = [&](MemoryKind kind) { return peak.by_kind[static_cast<size_t>(kind)]; };
    if (of(MemoryKind::activation) == 0) continue;  // of an update
    known = std::max(known, peak.bytes - of(MemoryKind::parameter) - of(MemoryKind::gradient) -
                                of(MemoryKind::optimizer_state) - of(MemoryKind::master_weight) -
                                of(MemoryKind::communication));
  }
}

// Passes of fewer samples take no more, and many choices share them: they are looked at first.
int64_t Bounds::memory(const Choice& choice) {
  Asked asked{.recompute = choice.recompute, .stashed = offloaded(choice, "activations")};
  for (; asked.micro < choice.micro_batch; asked.micro *= 2) {
    Footprint fewer = footprint(choice, asked);
    fewer.rest = fewer.even;
    if (const int64_t bytes = memory_with(choice, fewer); bytes > base_.room) return bytes;
  }
  asked.micro = choice.micro_batch;
  return memory_with(choice, footprint(choice, asked));
}

// Of the rank that leaves most there, which is no less than the average of a pipeline's: states and
// weights all the time, activations of a pass when its backward part begins.
int64_t Bounds::host(const Choice& choice) {
  if (choice.offload.empty()) return 0;
  const Footprint& whole = footprint(choice, {});
  const auto shard = static_cast<double>(choice.mesh.shard.value_or(1));
  double bytes = 0;
  if (offloaded(choice, "optimizer"))
    bytes += static_cast<double>(whole.states) / (choice.zero >= 1 ? shard : 1);
  if (offloaded(choice, "parameters"))
    bytes += static_cast<double>(whole.weights) / (choice.zero >= 3 ? shard : 1);
  if (offloaded(choice, "activations"))
    bytes += static_cast<double>(unit(choice, {.stashed = true}).to_host * choice.micro_batch);
  return static_cast<int64_t>(bytes / static_cast<double>(choice.mesh.pipeline));
}

bool Bounds::too_large(const Choice& choice) {
  return memory(choice) > base_.room || !host_holds(request_.cluster, request_.gpus, host(choice));
}

int64_t Bounds::memory_with(const Choice& choice, const Footprint& whole) {
  const States states = states_of(whole, choice);
  const double held = states.weights + states.optimizer;
  // From the second pass on, gradients are there all the time.
  const bool several = rows_of(choice, base_) > choice.micro_batch && choice.mesh.pipeline == 1;
  const double passing = held + static_cast<double>(whole.rest) + (several ? states.gradients : 0);
  // The fullest rank of a pipeline holds no less than the average.
  const double most =
      std::max(held + states.gradients, passing) / static_cast<double>(choice.mesh.pipeline);
  const auto learnt = learnt_.find(passing_of(choice));
  double passed = learnt == learnt_.end() ? 0 : static_cast<double>(learnt->second);
  if (choice.mesh.pipeline > 1) passed = std::max(passed, kept_in_flight(choice, whole));
  return static_cast<int64_t>(std::max(most, passed)) + request_.cluster.gpu.context.count;
}

}  // namespace braid::plan
