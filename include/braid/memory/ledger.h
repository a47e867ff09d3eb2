// SPDX-License-Identifier: BSD-3-Clause
// Counts every byte: who takes it, for what, when it goes. For real CPU, real CUDA and dry tensors.
//
//   memory::Ledger ledger;
//   { const memory::Instruments on({.ledger = &ledger}); step.run(batch, pass, lr); }
//   memory::Peak peak = ledger.peak(memory::cpu);   // peak.bytes, peak.by_kind, peak.alive.front()
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "braid/core/observe.h"

namespace braid::memory {

// Where bytes lie. Pinned host memory is a place of its own: it is scarce in another way.
struct Place {
  c10::DeviceType type = c10::kCPU;
  int index = 0;
  bool pinned = false;
  auto operator<=>(const Place&) const = default;
};
inline constexpr Place cpu = {};
inline constexpr Place pinned_host = {.pinned = true};
Place cuda(int index = 0);
Place place_of(c10::Device device);
std::string to_text(Place place);  // cpu, pinned host, cuda:0

using KindBytes = std::array<int64_t, memory_kinds>;

struct Held {  // one block of memory that is alive
  int64_t bytes = 0;
  MemoryKind kind = MemoryKind::other;
  std::string module;  // that ran when it was taken
  std::string op;      // that took it
};

struct Peak {
  int64_t bytes = 0;
  KindBytes by_kind = {};
  std::map<std::string, int64_t> by_module;
  std::vector<Held> alive;  // largest first
  std::string module, op;   // that ran at that moment
  double seconds = 0;       // since the history began
};

struct Moment {
  double seconds = 0;
  KindBytes by_kind = {};
};

// What kernels took beside their results, by operator: most at one time, and how often.
struct Scratch {
  int64_t bytes = 0, calls = 0;
};

// What happened to one block of a place; names are numbers into History::names.
struct HistoryEvent {
  enum class What : uint8_t {
    before,  // it was alive when the history began
    taken,
    changed,  // its kind: saved for the backward pass, or let go by it
    freed
  };
  What what = What::taken;
  MemoryKind kind = MemoryKind::other;  // from now on, as known by the end; of `freed` the last one
  uint32_t module = 0, op = 0;          // that took the block
  uint64_t block = 0;                   // number of the block; a resized one has a new number
  int64_t bytes = 0;
  int64_t nanoseconds = 0;  // since the history began
};

struct History {
  std::vector<std::string> names;
  std::vector<HistoryEvent> events;
};

// Thrown where a block would go beyond the limit of its place.
class DoesNotFit : public std::bad_alloc {
 public:
  DoesNotFit(Held asked, Place place, int64_t live, int64_t limit);
  const char* what() const noexcept override { return text_.c_str(); }

  Held asked;  // the block that was not taken
  Place place;
  int64_t live, limit;  // bytes

 private:
  std::string text_;
};

class Ledger {
 public:
  Ledger();
  ~Ledger();
  Ledger(Ledger&&) noexcept;
  Ledger& operator=(Ledger&&) noexcept;

  int64_t live(Place place) const;
  int64_t highest(Place place) const;  // peak since the history began, without replaying it
  Peak peak(Place place) const;
  Peak peak_without_scratch(Place place) const;  // of everything but MemoryKind::workspace
  std::vector<Moment> timeline(Place place) const;
  History history(Place place) const;
  std::map<std::string, Scratch> scratch(Place place) const;
  std::vector<Place> places() const;

  // What was alive when the last block was taken, or refused.
  Peak last(Place place) const;

  // Most bytes that may be alive at a place; 0: no limit. A block beyond it is refused with
  // DoesNotFit, and the history stands still from there on, so that it can be looked at while the
  // rest is freed.
  void limit(Place place, int64_t bytes);

  // A new history: peak and timeline begin now, with what is alive.
  void begin();

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;  // shared with the blocks alive, which may outlive the ledger
};

// The eight categories of PyTorch's memory timeline, in its order.
enum class TimelineCategory : uint8_t {
  parameter,
  optimizer_state,
  input,
  temporary,
  activation,
  gradient,
  autograd_detail,
  unknown
};
TimelineCategory timeline_category(MemoryKind kind);

}  // namespace braid::memory
