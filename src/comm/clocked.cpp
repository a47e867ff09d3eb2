// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/clock_state.h"

namespace braid::comm {
namespace {

class ClockedWork final : public Work {
 public:
  ClockedWork(VirtualClock clock, int rank, std::string stream, int64_t node)
      : clock_(std::move(clock)), rank_(rank), stream_(std::move(stream)), node_(node) {}
  void wait() override { clock_.wait(rank_, stream_, {node_}); }
  bool done() const override { return true; }  // nobody has to block for it

 private:
  VirtualClock clock_;
  int rank_;
  std::string stream_;
  int64_t node_;
};

class Clocked final : public Backend {
 public:
  Clocked(VirtualClock clock, std::shared_ptr<Backend> values, std::vector<int> world,
          ClockStreams streams, std::string group)
      : clock_(std::move(clock)),
        values_(std::move(values)),
        world_(std::move(world)),
        streams_(std::move(streams)),
        group_(std::move(group)) {}

  std::unique_ptr<Work> start(const Call& call) override;
  int rank() const override { return values_->rank(); }
  int size() const override { return values_->size(); }
  std::string_view name() const override { return "clock"; }
  std::shared_ptr<Backend> split(const std::vector<int>& ranks, const std::string& name) override;

 private:
  int here() const { return world_[static_cast<size_t>(rank())]; }
  double cost(Kind kind, const Call& call, int ranks) const;
  const std::string& stream_of(Kind kind) const;
  int64_t meet(const std::string& key, VirtualClock::State::Node fresh) const;
  int64_t node_of(const Call& call);
  int64_t recv_node(const Call& call, const std::string& key) const;

  VirtualClock clock_;
  std::shared_ptr<Backend> values_;
  std::vector<int> world_;  // ranks of the clock
  ClockStreams streams_;
  std::string group_;                      // differs for every split
  std::map<std::string, int64_t> counts_;  // calls so far on each way: what pairs the ranks' calls
};

double Clocked::cost(Kind kind, const Call& call, int ranks) const {
  const CostFunction& cost = clock_.state().cost;
  return cost ? cost(kind, bytes_of(call), ranks) : 0;
}

const std::string& Clocked::stream_of(Kind kind) const {
  if (kind == Kind::send) return streams_.send;
  return kind == Kind::recv ? streams_.recv : streams_.collective;
}

// The node of a call that several ranks come to: made by the first.
int64_t Clocked::meet(const std::string& key, VirtualClock::State::Node fresh) const {
  VirtualClock::State& clock = clock_.state();
  const auto [entry, first] = clock.meetings.try_emplace(key, -1);
  if (first) entry->second = clock.add(std::move(fresh));
  return entry->second;
}

// The recv itself takes no time: it ends when both its rank and the message are there.
int64_t Clocked::recv_node(const Call& call, const std::string& key) const {
  const int64_t sent = meet(key, {.seconds = cost(Kind::send, call, 2), .absent = 1, .label = key});
  return clock_.state().add({.label = key, .message = sent});
}

int64_t Clocked::node_of(const Call& call) {
  const bool message = call.kind == Kind::send || call.kind == Kind::recv;
  std::string way = fmt::format("collective of group {}", group_);
  if (message) {
    const int peer = world_[static_cast<size_t>(call.peer)];
    const bool sends = call.kind == Kind::send;
    way = fmt::format("message of group {} from rank {} to rank {}, tag {}", group_,
                      sends ? here() : peer, sends ? peer : here(), call.tag);
  }
  const std::string key = fmt::format("{}, number {}", way, counts_[way]++);
  if (call.kind == Kind::recv) return recv_node(call, key);
  const int ranks = message ? 2 : size();
  const int64_t node = meet(
      key, {.seconds = cost(call.kind, call, ranks), .absent = message ? 1 : size(), .label = key});
  clock_.state().nodes[static_cast<size_t>(node)].absent -= 1;
  return node;
}

std::unique_ptr<Work> Clocked::start(const Call& call) {
  values_->start(call)->wait();
  VirtualClock::State& clock = clock_.state();
  const std::lock_guard lock(clock.mutex);
  const int64_t node = node_of(call);
  const std::string& stream = stream_of(call.kind);
  clock.follow(node, clock.last(here(), stream));
  if (stream != streams_.compute) clock.follow(node, clock.last(here(), streams_.compute));
  clock.put(here(), stream, node);
  clock.shown.push_back({here(), stream, to_text(call), node});
  return std::make_unique<ClockedWork>(clock_, here(), streams_.compute, node);
}

std::shared_ptr<Backend> Clocked::split(const std::vector<int>& ranks, const std::string& name) {
  std::vector<int> world;
  for (const int rank : ranks) world.push_back(world_[static_cast<size_t>(rank)]);
  std::string id = fmt::format("{} [{}]", name, fmt::join(world, ","));
  const std::lock_guard lock(clock_.state().mutex);
  if (const int64_t again = counts_["split " + id]++; again > 0) id += fmt::format(" #{}", again);
  return std::make_shared<Clocked>(clock_, values_->split(ranks, name), std::move(world), streams_,
                                   std::move(id));
}

}  // namespace

std::shared_ptr<Backend> clocked(const VirtualClock& clock, int rank, ClockStreams streams) {
  std::vector<int> world(static_cast<size_t>(clock.ranks()));
  std::iota(world.begin(), world.end(), 0);
  return std::make_shared<Clocked>(clock, dry(rank, clock.ranks()), std::move(world),
                                   std::move(streams), "world");
}

}  // namespace braid::comm
