// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "memory/block.h"

namespace braid::memory {

uint32_t Ledger::State::name_locked(std::string_view text) {
  const auto found = name_index.find(text);
  if (found != name_index.end()) return found->second;
  const auto index = static_cast<uint32_t>(names.size());
  names.emplace_back(text);
  name_index.emplace(names.back(), index);
  return index;
}

uint32_t Ledger::State::name(std::string_view text) {
  const std::lock_guard lock(mutex);
  return name_locked(text);
}

void Ledger::State::add(const BlockPtr& block, Happened what, uint32_t module, uint32_t op) {
  if (refused) return;
  const auto now = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - began);
  events.push_back({block, what, block->bytes, now.count(), module, op});
}

void Ledger::State::refuse_beyond_limit(const Block& block, int64_t more) {
  const auto limit = limits.find(block.place);
  if (limit == limits.end() || live[block.place] + more <= limit->second) return;
  refused = true;
  throw DoesNotFit({.bytes = block.bytes,
                    .kind = static_cast<MemoryKind>(
                        block.kind < 0 ? static_cast<int>(MemoryKind::temporary) : block.kind),
                    .module = names[block.module],
                    .op = names[block.op]},
                   block.place, live[block.place], limit->second);
}

BlockPtr Ledger::State::take(int64_t bytes, Place place, int kind, uint32_t module, uint32_t op) {
  auto block = std::make_shared<Block>();
  block->bytes = bytes;
  block->place = place;
  block->kind = kind;
  block->module = module;
  block->op = op;
  block->ledger = weak_from_this();
  const std::lock_guard lock(mutex);
  refuse_beyond_limit(*block, bytes);
  int64_t& now = live[place];
  now += bytes;
  highest[place] = std::max(highest[place], now);
  add(block, Happened::taken, module, op);
  return block;
}

void Ledger::State::free(const BlockPtr& block) {
  const std::lock_guard lock(mutex);
  if (!block->alive) return;
  block->alive = false;
  live[block->place] -= block->bytes;
  add(block, Happened::freed, 0, 0);
}

void Ledger::State::resize(const BlockPtr& block, int64_t bytes) {
  const std::lock_guard lock(mutex);
  if (block->bytes == bytes || !block->alive) return;
  refuse_beyond_limit(*block, bytes - block->bytes);
  add(block, Happened::freed, 0, 0);
  int64_t& now = live[block->place];
  now += bytes - block->bytes;
  highest[block->place] = std::max(highest[block->place], now);
  block->bytes = bytes;
  add(block, Happened::taken, block->module, block->op);
}

void Ledger::State::save(const BlockPtr& block) {
  const std::lock_guard lock(mutex);
  add(block, Happened::saved, 0, 0);
}

void Ledger::State::unsave(const BlockPtr& block) {
  const std::lock_guard lock(mutex);
  add(block, Happened::unsaved, 0, 0);
}

void Ledger::State::begin() {
  const std::lock_guard lock(mutex);
  std::vector<BlockPtr> alive;  // in the order they were taken
  std::unordered_map<const Block*, int> saves;
  std::unordered_set<const Block*> listed;
  for (const Event& event : events) {
    if (!event.block->alive) continue;
    if (event.what == Happened::saved) ++saves[event.block.get()];
    if (event.what == Happened::unsaved) --saves[event.block.get()];
    if (event.what == Happened::taken && listed.insert(event.block.get()).second)
      alive.push_back(event.block);
  }
  events.clear();
  refused = false;
  began = Clock::now();
  for (const BlockPtr& block : alive) {
    block->from_before = true;
    add(block, Happened::taken, block->module, block->op);
    for (int i = saves[block.get()]; i > 0; --i) add(block, Happened::saved, 0, 0);
  }
  highest = live;
}

void free_block(const BlockPtr& block) {
  if (block == nullptr) return;
  if (const auto ledger = block->ledger.lock()) ledger->free(block);
}

DoesNotFit::DoesNotFit(Held block, Place where, int64_t alive, int64_t most)
    : asked(std::move(block)),
      place(where),
      live(alive),
      limit(most),
      text_(fmt::format("out of memory: {} bytes for {}{} beside {} bytes alive on {}, whose limit "
                        "is {} bytes",
                        asked.bytes, asked.op.empty() ? "a tensor" : asked.op,
                        asked.module.empty() ? "" : " of " + asked.module, live, to_text(place),
                        limit)) {}

Ledger::Ledger() : state_(std::make_shared<State>()) {}
Ledger::~Ledger() = default;
Ledger::Ledger(Ledger&&) noexcept = default;
Ledger& Ledger::operator=(Ledger&&) noexcept = default;

int64_t Ledger::live(Place place) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->live.find(place);
  return found == state_->live.end() ? 0 : found->second;
}

int64_t Ledger::highest(Place place) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->highest.find(place);
  return found == state_->highest.end() ? 0 : found->second;
}

std::vector<Place> Ledger::places() const {
  const std::lock_guard lock(state_->mutex);
  std::vector<Place> all;
  for (const auto& [place, bytes] : state_->highest) all.push_back(place);
  return all;
}

void Ledger::limit(Place place, int64_t bytes) {
  const std::lock_guard lock(state_->mutex);
  if (bytes > 0)
    state_->limits[place] = bytes;
  else
    state_->limits.erase(place);
}

void Ledger::begin() { state_->begin(); }

Place cuda(int index) { return {.type = c10::kCUDA, .index = index}; }

Place place_of(c10::Device device) {
  return {.type = device.type(),
          .index = device.has_index() && !device.is_cpu() ? device.index() : 0};
}

std::string to_text(Place place) {
  if (place.pinned) return "pinned host";
  if (place.type == c10::kCPU) return "cpu";
  return fmt::format("{}:{}", c10::DeviceTypeName(place.type, /*lower_case=*/true), place.index);
}

TimelineCategory timeline_category(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::parameter:
      return TimelineCategory::parameter;
    case MemoryKind::optimizer_state:
    case MemoryKind::master_weight:
      return TimelineCategory::optimizer_state;
    case MemoryKind::input:
      return TimelineCategory::input;
    case MemoryKind::activation:
      return TimelineCategory::activation;
    case MemoryKind::gradient:
      return TimelineCategory::gradient;
    case MemoryKind::temporary:
    case MemoryKind::workspace:
      return TimelineCategory::temporary;
    case MemoryKind::communication:
      return TimelineCategory::autograd_detail;
    case MemoryKind::other:
      break;
  }
  return TimelineCategory::unknown;
}

}  // namespace braid::memory
