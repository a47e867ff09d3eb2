// SPDX-License-Identifier: BSD-3-Clause
// The dry run of one micro-batch and what it says.
#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>

#include "braid/nn/options.h"
#include "braid/train/measure.h"
#include "plan/space_bound.h"

namespace braid::plan {
namespace {

// Which block an operator belongs to; what stands before the first one counts to it, what stands
// behind the last one to that.
class BlockOf {
 public:
  explicit BlockOf(std::vector<std::string> blocks) : blocks_(std::move(blocks)) {}

  size_t operator()(const memory::Operator& op) {
    if (const size_t at = named(op.module); at < blocks_.size()) return last_ = at;
    if (op.backward || op.recomputed) {
      const auto seen = outside_.find(op.module);
      return seen != outside_.end() ? seen->second : last_;
    }
    outside_[op.module] = last_;
    return last_;
  }

 private:
  size_t named(std::string_view module) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      const std::string& block = blocks_[i];
      if (module.starts_with(block) &&
          (module.size() == block.size() || module[block.size()] == '.'))
        return i;
    }
    return blocks_.size();
  }

  std::vector<std::string> blocks_;
  std::map<std::string, size_t> outside_;
  size_t last_ = 0;
};

std::vector<std::string> block_names(const train::RunOptions& options) {
  return nn::make_model(options.model, {.seed = static_cast<uint64_t>(options.seed),
                                        .precision = policy_of(options.train),
                                        .dry_params = true})
      ->blocks();
}

// Bytes of each block that stay for the backward pass: alive when a later block begins.
std::vector<int64_t> kept_by_blocks(const memory::History& history,
                                    const std::vector<std::string>& blocks) {
  std::vector<int64_t> live(blocks.size(), 0), kept(blocks.size(), 0);
  std::vector<size_t> block_of_name;
  for (const std::string& name : history.names) {
    size_t at = 0;
    while (at < blocks.size() &&
           !(name.starts_with(blocks[at]) &&
             (name.size() == blocks[at].size() || name[blocks[at].size()] == '.')))
      ++at;
    block_of_name.push_back(at);
  }
  std::map<uint64_t, std::pair<size_t, int64_t>> held;  // activations alive
  size_t reached = 0;
  for (const memory::HistoryEvent& event : history.events) {
    using What = memory::HistoryEvent::What;
    if (const auto old = held.find(event.block); old != held.end()) {
      live[old->second.first] -= old->second.second;
      held.erase(old);
    }
    const size_t block = block_of_name[event.module];
    if (block >= blocks.size() || event.what == What::freed) continue;
    if (event.what == What::taken && block > reached) {
      if (block == reached + 1) kept[reached] = live[reached];
      reached = block;
    }
    if (event.kind != MemoryKind::activation) continue;
    live[block] += event.bytes;
    held[event.block] = {block, event.bytes};
  }
  return kept;
}

enum class Within : uint8_t { nothing, pass, optimizer };

// The first pass stands for all: the last one also does what is done once a step, and what stands
// in no region is left out.
std::vector<Within> regions_of(const RankTrace& trace) {
  std::vector<Within> within(trace.operators.size(), Within::nothing);
  for (const RegionMark& mark : trace.regions) {
    const bool pass = mark.micro == 0 && (mark.name == "forward" || mark.name == "backward");
    if (!pass && mark.name != "optimizer") continue;
    std::fill(within.begin() + mark.from, within.begin() + mark.until,
              pass ? Within::pass : Within::optimizer);
  }
  return within;
}

using MessageSeconds = std::function<double(const Message&)>;

Unit unit_of(const RankRun& rank, const CostModel& model, const MessageSeconds& seconds,
             const std::vector<std::string>& blocks) {
  Unit unit;
  const size_t count = std::max<size_t>(blocks.size(), 1);
  unit.forward.assign(count, 0);
  unit.backward.assign(count, 0);
  unit.again.assign(count, 0);
  const RankTrace& trace = rank.trace;
  const std::vector<Within> within = regions_of(trace);
  BlockOf block_of(blocks);
  auto message = trace.messages.begin();
  for (size_t i = 0; i < trace.operators.size(); ++i) {
    const memory::Operator& op = trace.operators[i];
    const bool pass = within[i] == Within::pass;
    const size_t block = blocks.empty() ? 0 : block_of(op);
    double& place = (op.backward || op.recomputed ? unit.backward : unit.forward)[block];
    for (; message != trace.messages.end() && message->from <= static_cast<int64_t>(i); ++message)
      if (message->until == message->from && pass) {
        unit.waited.push_back(*message);
        place += seconds(*message);
      }
    if (op.on == memory::RunsOn::to_host && pass && !op.outputs.empty())
      unit.to_host += op.outputs.front().bytes();
    if (op.on != memory::RunsOn::device) continue;
    const OpCost cost = model.cost(op);
    if (within[i] == Within::optimizer) unit.optimizer += cost.seconds;
    if (!pass) continue;
    place += cost.seconds;
    unit.host += cost.host;
    if (op.recomputed) unit.again[block] += op.causal ? op.flops / 2 : op.flops;
  }
  return unit;
}

}  // namespace

const CostModel& Bounds::costs(const Choice& choice) {
  const auto known = costs_.find(choice.precision);
  if (known != costs_.end()) return known->second;
  const CostOptions how{.graph = request_.gpus == 1,  // what may forbid it only costs more
                        .tf32 = policy_of(apply(base_.options, choice).train).tf32};
  return costs_.emplace(choice.precision, CostModel(request_.cluster, how)).first->second;
}

train::RunOptions Bounds::alone(const Choice& choice, const Asked& asked, int64_t passes) const {
  Choice part;
  part.mesh = choice.mesh;
  part.mesh.data = part.mesh.shard = 1;
  part.mesh.pipeline = 1;
  part.micro_batch = asked.micro;
  part.recompute = asked.recompute;
  part.schedule = base_.options.parallel.schedule;
  part.precision = choice.precision;
  if (asked.stashed) part.offload = {"activations"};
  train::RunOptions options = apply(base_.options, part);
  options.train.global_batch = passes * asked.micro * choice.mesh.expert;
  return options;
}

Unit Bounds::run(const Choice& choice, const Asked& asked) {
  const train::RunOptions options = alone(choice, asked, asked.once ? 1 : 2);
  ++dry_runs_;
  const int64_t world = choice.mesh.tensor * choice.mesh.context * choice.mesh.expert;
  const CostModel& model = costs(choice);
  return unit_of(
      dry_layout(options, world, {.evaluation = false}).ranks.front(), model,
      [&](const Message& message) { return least_seconds(model, message); }, block_names(options));
}

// Wherever the ranks of its group lie: on as few nodes as can be, or spread over more of them,
// which may have fewer hops or the faster links.
double Bounds::least_seconds(const CostModel& model, const Message& message) {
  const size_t ranks = message.ranks.size();
  const auto [known, fresh] = least_.try_emplace(
      {static_cast<int>(message.kind), ranks, message.bytes}, std::numeric_limits<double>::max());
  if (!fresh) return known->second;
  const auto node = static_cast<size_t>(request_.cluster.gpus_per_node);
  Message placed = message;
  for (size_t nodes = (ranks + node - 1) / node; nodes <= ranks; ++nodes) {
    for (size_t i = 0; i < ranks; ++i)
      placed.ranks[i] = static_cast<int>(i % nodes * node + i / nodes);
    placed.peer = message.peer < 0 ? -1 : placed.ranks.front();
    known->second = std::min(known->second, model.seconds(placed));
  }
  return known->second;
}

Bounds::Key Bounds::key_of(const Choice& choice, const Asked& asked) {
  return {choice.mesh.tensor,
          choice.mesh.context,
          choice.mesh.expert,
          asked.micro,
          static_cast<int>(asked.recompute),
          choice.precision,
          asked.stashed,
          asked.once};
}

const Unit& Bounds::unit(const Choice& choice, const Asked& asked) {
  const Key key = key_of(choice, asked);
  const auto known = units_.find(key);
  return known != units_.end() ? known->second
                               : units_.emplace(key, run(choice, asked)).first->second;
}

const Footprint& Bounds::footprint(const Choice& choice, const Asked& asked) {
  const Key key = key_of(choice, asked);
  const auto known = footprints_.find(key);
  if (known != footprints_.end()) return known->second;
  Footprint found;  // kept when it is whole: a time limit may end the run
  ++dry_runs_;
  const c10::Device device(c10::kCUDA, 0);
  memory::Ledger ledger;
  train::watch_step(
      ledger, alone(choice, asked, 1),
      {.device = device, .world = choice.mesh.tensor * choice.mesh.context * choice.mesh.expert});
  found.kept = kept_by_blocks(ledger.history(memory::place_of(device)), block_names(base_.options));
  for (const memory::Moment& moment : ledger.timeline(memory::place_of(device))) {
    const auto of = [&](MemoryKind kind) { return moment.by_kind[static_cast<size_t>(kind)]; };
    found.weights = std::max(found.weights, of(MemoryKind::parameter));
    const int64_t states = of(MemoryKind::optimizer_state) + of(MemoryKind::master_weight);
    found.states = std::max(found.states, states);
    if (of(MemoryKind::activation) == 0) continue;  // an update, which ZeRO makes smaller
    int64_t all = 0;
    for (const int64_t bytes : moment.by_kind) all += bytes;
    const int64_t others = of(MemoryKind::gradient) + of(MemoryKind::communication);
    const int64_t rest = all - of(MemoryKind::parameter) - states - others;
    found.rest = std::max(found.rest, rest);
    found.even = std::max(found.even, rest - of(MemoryKind::workspace));
  }
  return footprints_.emplace(key, std::move(found)).first->second;
}

}  // namespace braid::plan
