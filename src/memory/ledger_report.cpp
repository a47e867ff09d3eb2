// SPDX-License-Identifier: BSD-3-Clause
// Answers of the ledger: its history is played again, with what is known of each block by now (that
// a result of backward became a gradient is known only afterwards).
#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "memory/block.h"

namespace braid::memory {
namespace {

MemoryKind kind_of(const Block& block, int saves) {
  if (block.scratch) return MemoryKind::workspace;
  if (block.kind >= 0) return static_cast<MemoryKind>(block.kind);
  if (saves > 0) return MemoryKind::activation;
  return block.from_before ? MemoryKind::other : MemoryKind::temporary;
}

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
      all.push_back(
          {use.bytes, kind_of(*block, use.saves), names[block->module], names[block->op]});
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

  void count(Block* block, int64_t bytes) {
    bytes_ += bytes;
    by_kind_[static_cast<size_t>(kind_of(*block, alive_[block].saves))] += bytes;
  }

  Place place_;
  bool with_scratch_;
  std::unordered_map<Block*, Use> alive_;
  int64_t bytes_ = 0;
  KindBytes by_kind_ = {};
};

// Numbers the blocks of a place and says what each event means for one of them.
class Chronicle {
 public:
  explicit Chronicle(Place place) : place_(place) {}

  void add(const Event& event, std::vector<HistoryEvent>& to) {
    const Block& block = *event.block;
    if (block.place != place_) return;
    using What = HistoryEvent::What;
    if (event.what == Happened::taken) {
      const bool before = block.from_before && seen_.insert(&block).second;
      alive_[&block] = {next_++, 0};
      to.push_back(line(event, before ? What::before : What::taken));
      return;
    }
    const auto found = alive_.find(&block);
    if (found == alive_.end()) return;
    if (event.what == Happened::freed) {
      to.push_back(line(event, What::freed));
      alive_.erase(found);
      return;
    }
    const MemoryKind kind = kind_of(block, found->second.saves);
    found->second.saves += event.what == Happened::saved ? 1 : -1;
    if (kind_of(block, found->second.saves) != kind) to.push_back(line(event, What::changed));
  }

 private:
  struct Use {
    uint64_t number = 0;
    int saves = 0;
  };

  HistoryEvent line(const Event& event, HistoryEvent::What what) const {
    const Block& block = *event.block;
    const Use& use = alive_.at(&block);
    return {.what = what,
            .kind = kind_of(block, use.saves),
            .module = block.module,
            .op = block.op,
            .block = use.number,
            .bytes = event.bytes,
            .nanoseconds = event.nanoseconds};
  }

  Place place_;
  uint64_t next_ = 0;
  std::unordered_map<const Block*, Use> alive_;
  std::unordered_set<const Block*> seen_;
};

double seconds_of(const Event& event) { return static_cast<double>(event.nanoseconds) * 1e-9; }

// What is alive after the first `count` events.
Peak alive_after(const Ledger::State& ledger, Place place, bool with_scratch, size_t count) {
  Peak peak;
  if (count == 0) return peak;
  Replay there(place, with_scratch);
  for (size_t i = 0; i < count; ++i) there.apply(ledger.events[i]);
  const Event& event = ledger.events[count - 1];
  peak.bytes = there.bytes();
  peak.by_kind = there.by_kind();
  peak.alive = there.held(ledger.names);
  for (const Held& held : peak.alive) peak.by_module[held.module] += held.bytes;
  peak.module = ledger.names[event.module];
  peak.op = ledger.names[event.op];
  peak.seconds = seconds_of(event);
  return peak;
}

Peak peak_of(const Ledger::State& ledger, Place place, bool with_scratch) {
  const std::lock_guard lock(ledger.mutex);
  size_t count = 0;
  int64_t most = 0;
  Replay search(place, with_scratch);
  for (size_t i = 0; i < ledger.events.size(); ++i) {
    search.apply(ledger.events[i]);
    if (search.bytes() > most) {
      most = search.bytes();
      count = i + 1;
    }
  }
  return alive_after(ledger, place, with_scratch, count);
}

}  // namespace

Peak Ledger::peak(Place place) const { return peak_of(*state_, place, true); }
Peak Ledger::peak_without_scratch(Place place) const { return peak_of(*state_, place, false); }

Peak Ledger::last(Place place) const {
  const std::lock_guard lock(state_->mutex);
  size_t count = state_->events.size();
  // Without a refusal, what came after the last block that was taken is a failed step on its way
  // out.
  const auto is_take = [&](const Event& event) {
    return event.what == Happened::taken && event.block->place == place;
  };
  while (!state_->refused && count > 0 && !is_take(state_->events[count - 1])) --count;
  return alive_after(*state_, place, true, count);
}

std::vector<Moment> Ledger::timeline(Place place) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Moment> moments;
  Replay replay(place, true);
  for (const Event& event : state_->events)
    if (replay.apply(event)) moments.push_back({seconds_of(event), replay.by_kind()});
  return moments;
}

History Ledger::history(Place place) const {
  const std::lock_guard lock(state_->mutex);
  History history{.names = state_->names, .events = {}};
  Chronicle chronicle(place);
  for (const Event& event : state_->events) chronicle.add(event, history.events);
  return history;
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
