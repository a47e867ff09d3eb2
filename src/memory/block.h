// SPDX-License-Identifier: BSD-3-Clause
// What the ledger writes down: blocks of memory and what happened to them, in order.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/memory/ledger.h"

namespace braid::memory {

struct Block {
  int64_t bytes = 0;
  Place place;
  int kind = -1;         // MemoryKind once somebody said it; -1: it follows from use
  bool scratch = false;  // taken inside an operator and not its result
  bool alive = true;
  bool from_before = false;             // was there when the history began
  uint32_t module = 0, op = 0;          // names
  std::weak_ptr<Ledger::State> ledger;  // that counts it
};
using BlockPtr = std::shared_ptr<Block>;

enum class Happened : uint8_t { taken, freed, saved, unsaved };

struct Event {
  BlockPtr block;
  Happened what;
  int64_t bytes;  // of the block then: `resize_` changes it
  int64_t nanoseconds;
  uint32_t module, op;  // that ran
};

struct Ledger::State : std::enable_shared_from_this<Ledger::State> {
  using Clock = std::chrono::steady_clock;

  mutable std::mutex mutex;
  std::vector<std::string> names = {""};
  std::map<std::string, uint32_t, std::less<>> name_index = {{"", 0}};
  std::vector<Event> events;
  std::map<Place, int64_t> live, highest, limits;
  bool refused = false;  // a block: the history stands still
  Clock::time_point began = Clock::now();

  uint32_t name(std::string_view text);
  BlockPtr take(int64_t bytes, Place place, int kind, uint32_t module, uint32_t op);
  void free(const BlockPtr& block);
  void resize(const BlockPtr& block, int64_t bytes);
  void save(const BlockPtr& block);
  void unsave(const BlockPtr& block);
  void begin();

 private:
  void add(const BlockPtr& block, Happened what, uint32_t module, uint32_t op);
  void refuse_beyond_limit(const Block& block, int64_t more);  // under the mutex
  uint32_t name_locked(std::string_view text);
};

// Counting ends here when the last owner of the memory lets go; the ledger may be gone by then.
void free_block(const BlockPtr& block);

}  // namespace braid::memory
