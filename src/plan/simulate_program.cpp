// SPDX-License-Identifier: BSD-3-Clause
#include "plan/simulate_program.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "braid/core/deadline.h"
#include "braid/parallel/mesh.h"

namespace braid::plan {
namespace {

bool in_optimizer(const memory::Operator& op) {
  return op.module == "optimizer" || op.module.starts_with("optimizer.");
}

Spent spent_on(const memory::Operator& op) {
  if (in_optimizer(op)) return Spent::optimizer;
  if (op.recomputed) return Spent::recompute;
  return op.backward ? Spent::backward : Spent::forward;
}

// The host's memory is no slower than the way to the GPU.
double host_seconds(const memory::Operator& op, const Prices& prices) {
  const double rate = prices.cluster.host.copy_bandwidth;
  return rate > 0 ? static_cast<double>(op.bytes) / rate : 0;
}

// Steps of the backward pass repeat the same messages: their price is asked for once.
class MessagePrices {
 public:
  MessagePrices(const Prices& prices, int64_t rank)
      : prices_(prices), rank_(static_cast<int>(rank)) {}
  // `exchanged`: within a stage all ranks do the same, and what is received is sent as well.
  double of(const Message& message, int32_t group, bool exchanged) {
    const comm::Kind kind = exchanged ? comm::Kind::send : message.kind;
    const auto [place, fresh] = known_.try_emplace({kind, group, message.bytes, message.peer}, 0.0);
    if (!fresh) return place->second;
    Message asked = message;
    asked.kind = kind;
    return place->second = prices_.message(asked, rank_);
  }

 private:
  const Prices& prices_;
  const int rank_;
  std::map<std::tuple<comm::Kind, int32_t, int64_t, int>, double> known_;
};

// Clocks fall when kernels draw more power than there is. The energy of a step stays, so it takes
// as long as the board needs to give it; kernels that wait for memory do not become slower.
class Energy {
 public:
  void add(const OpCost& cost) {
    seconds_ += cost.seconds;
    drawn_ += cost.heat * cost.seconds;
    if (cost.heat > 1) hot_seconds_ += cost.seconds;
  }
  // Of the seconds of kernels with this heat.
  double stretch(double heat) const {
    return heat > 1 && drawn_ > seconds_ ? 1 + (drawn_ - seconds_) / hot_seconds_ : 1;
  }

 private:
  double seconds_ = 0, drawn_ = 0, hot_seconds_ = 0;
};

void price_operators(Program& program, const Prices& prices) {
  const RankTrace& trace = program.run->trace;
  program.ops.reserve(trace.operators.size());
  Energy energy;
  std::vector<double> heats;
  for (const memory::Operator& op : trace.operators) {
    check_deadline();
    if (op.on == memory::RunsOn::host) {
      program.ops.push_back(
          {.seconds = 0, .host = host_seconds(op, prices), .spent = spent_on(op)});
      heats.push_back(0);
      continue;
    }
    const OpCost cost = prices.op(op);
    energy.add(cost);
    heats.push_back(cost.heat);
    program.ops.push_back({.seconds = cost.seconds, .host = cost.host, .spent = spent_on(op)});
  }
  for (size_t i = 0; i < heats.size(); ++i) program.ops[i].seconds *= energy.stretch(heats[i]);
  for (const RegionMark& mark : trace.regions) {
    if (mark.name != "optimizer") continue;
    const auto end = std::min(mark.until, static_cast<int64_t>(program.ops.size()));
    for (int64_t i = mark.from; i < end; ++i) program.ops[size_t(i)].spent = Spent::optimizer;
  }
  for (size_t i = 0; i < trace.copies.size(); ++i) {
    const Copy& copy = trace.copies[i];
    if (copy.op < 0 || static_cast<size_t>(copy.op) >= program.ops.size()) continue;
    PricedOp& op = program.ops[size_t(copy.op)];
    op.copy = static_cast<int32_t>(i);
    op.seconds = prices.copy(copy.bytes);
  }
}

}  // namespace

Groups::Groups(const LayoutRun& layout, int64_t gpus_per_node) : gpus_per_node_(gpus_per_node) {
  stages_ = std::max<int64_t>(1, static_cast<int64_t>(layout.kind_of.size()));
  if (stages_ == 1) return;
  const parallel::Mesh mesh(layout.options.mesh, layout.world, 0,
                            static_cast<int>(layout.options.train.zero));
  const std::vector<int> axis = mesh.ranks_of({parallel::Axis::pipeline});
  stride_ = axis.at(1) - axis.at(0);
}

int32_t Groups::number_of(const Message& message) {
  const std::vector<int>& ranks = message.ranks;
  const Key key{message.group, ranks.size(), ranks.empty() ? 0 : ranks.front(),
                ranks.empty() ? 0 : ranks.back()};
  const auto known = numbers_.find(key);
  if (known != numbers_.end()) return known->second;
  std::set<int> stages;
  std::set<int64_t> nodes;
  for (const int rank : ranks) {
    stages.insert(stage_of(rank));
    nodes.insert(rank / gpus_per_node_);
  }
  GroupPlace place{message.group, std::vector<int>(stages.begin(), stages.end()), nodes.size() > 1};
  return numbers_[key] = add(std::move(place), ranks.size());
}

// Stages may be stood for by ranks of different lines of the pipeline: what they call the same is
// the same to them.
int32_t Groups::add(GroupPlace place, size_t ranks) {
  const auto fresh = static_cast<int32_t>(places_.size());
  if (place.stages.size() > 1) {
    const auto [known, added] = meetings_.try_emplace({place.name, ranks, place.stages}, fresh);
    if (!added) return known->second;
  }
  places_.push_back(std::move(place));
  return fresh;
}

Program price(const RankRun& run, const Prices& prices, Groups& groups) {
  Program program{.run = &run, .ops = {}, .messages = {}, .waits = {}};
  price_operators(program, prices);
  const auto end = static_cast<int64_t>(program.ops.size());
  const int here = groups.stage_of(run.rank);
  MessagePrices messages(prices, run.rank);
  for (const Message& message : run.trace.messages) {
    check_deadline();
    const int32_t group = groups.number_of(message);
    const bool mail = is_message(message.kind) && message.peer >= 0;
    const int jump = mail ? groups.stage_of(message.peer) - here : 0;
    const bool waited = message.until >= message.from;
    program.messages.push_back({.seconds = messages.of(message, group, mail && jump == 0),
                                .group = group,
                                .until = waited ? std::min(message.until, end) : end,
                                .jump = jump});
  }
  program.waits.resize(program.messages.size());
  std::iota(program.waits.begin(), program.waits.end(), 0);
  std::stable_sort(program.waits.begin(), program.waits.end(), [&](int32_t a, int32_t b) {
    return program.messages[size_t(a)].until < program.messages[size_t(b)].until;
  });
  return program;
}

}  // namespace braid::plan
