// SPDX-License-Identifier: BSD-3-Clause
// Answers of the ledger: its history is played again, with what is known of each block by now (that
// a result of backward became a gradient is known only afterwards).
#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "memory/block.h"

namespace braid::memory {
namespace {

class Replay {
 public:
  Replay(Place place, bool with_scratch) : place_(place), with_scratch_(with_scratch) {}

  // False if the event does not concern this place.
  bool apply(const Event& event) {
    Block* block = event.block.get();
    if (block->place != place_ || (block->scratch && !with_scratch_)) return false;
    if (event.what == Happened::taken) {
      alive_[block] = {event.bytes, 0};
      count(block, event.bytes);
      return true;
    }
    const auto found = alive_.find(block);
    if (found == alive_.end()) return false;
    count(block, -found->second.bytes);
    if (event.what == Happened::freed) {
      alive_.erase(found);
      return true;
    }
    found->second.saves += event.what == Happened::saved ? 1 : -1;
    count(block, found->second.bytes);
    return true;
  }

  int64_t bytes() const { return bytes_; }
  const KindBytes& by_kind() const { return by_kind_; }

  std::vector<Held> held(const std::vector<std::string>& names) const {
    std::vector<Held> all;
    for (const auto& [block, use] : alive_)
      all.push_back({use.bytes, kind(*block, use.saves), names[block->module], names[block->op]});
    std::sort(all.begin(), all.end(), [](const Held& a, const Held& b) {
      return std::tie(b.bytes, a.module, a.op) < std::tie(a.bytes, b.module, b.op);
    });
    return all;
  }

 private:
  struct Use {
    int64_t bytes = 0;
    int saves = 0;
  };

  static MemoryKind kind(const Block& block, int saves) {
    if (block.scratch) return MemoryKind::workspace;
    if (block.kind >= 0) return static_cast<MemoryKind>(block.kind);
    if (saves > 0) return MemoryKind::activation;
    return block.from_before ? MemoryKind::other : MemoryKind::temporary;
  }

  void count(Block* block, int64_t bytes) {
    bytes_ += bytes;
    by_kind_[static_cast<size_t>(kind(*block, alive_[block].saves))] += bytes;
  }

  Place place_;
  bool with_scratch_;
  std::unordered_map<Block*, Use> alive_;
  int64_t bytes_ = 0;
  KindBytes by_kind_ = {};
};

double seconds_of(const Event& event) { return static_cast<double>(event.nanoseconds) * 1e-9; }

Peak peak_of(const Ledger::State& ledger, Place place, bool with_scratch) {
  const std::lock_guard lock(ledger.mutex);
  size_t at = 0;
  int64_t most = 0;
  Replay search(place, with_scratch);
  for (size_t i = 0; i < ledger.events.size(); ++i) {
    search.apply(ledger.events[i]);
    if (search.bytes() > most) {
      most = search.bytes();
      at = i;
    }
  }
  Peak peak;
  if (most == 0) return peak;
  Replay there(place, with_scratch);
  for (size_t i = 0; i <= at; ++i) there.apply(ledger.events[i]);
  const Event& event = ledger.events[at];
  peak.bytes = most;
  peak.by_kind = there.by_kind();
  peak.alive = there.held(ledger.names);
  for (const Held& held : peak.alive) peak.by_module[held.module] += held.bytes;
  peak.module = ledger.names[event.module];
  peak.op = ledger.names[event.op];
  peak.seconds = seconds_of(event);
  return peak;
}

}  // namespace

Peak Ledger::peak(Place place) const { return peak_of(*state_, place, true); }
Peak Ledger::peak_without_scratch(Place place) const { return peak_of(*state_, place, false); }

std::vector<Moment> Ledger::timeline(Place place) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Moment> moments;
  Replay replay(place, true);
  for (const Event& event : state_->events)
    if (replay.apply(event)) moments.push_back({seconds_of(event), replay.by_kind()});
  return moments;
}

std::map<std::string, Scratch> Ledger::scratch(Place place) const {
  const std::lock_guard lock(state_->mutex);
  std::map<std::string, Scratch> by_op;
  std::map<std::string, int64_t> live;
  for (const Event& event : state_->events) {
    if (!event.block->scratch || event.block->place != place) continue;
    const std::string& op = state_->names[event.block->op];
    if (event.what == Happened::freed) live[op] -= event.bytes;
    if (event.what != Happened::taken) continue;
    Scratch& entry = by_op[op];
    entry.bytes = std::max(entry.bytes, live[op] += event.bytes);
    ++entry.calls;
  }
  return by_op;
}

}  // namespace braid::memory
