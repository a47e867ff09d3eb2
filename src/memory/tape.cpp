// SPDX-License-Identifier: BSD-3-Clause
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "braid/core/error.h"
#include "memory/tape_state.h"
#include "memory/values.h"

namespace braid::memory {
namespace {

// A scope lies within one pass on one thread.
thread_local TapeUse tape_use;

}  // namespace

TapeUse tape_now() { return tape_use; }

Tape::Tape(TapeOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
}
Tape::~Tape() = default;
Tape::Tape(Tape&&) noexcept = default;
Tape& Tape::operator=(Tape&&) noexcept = default;

size_t Tape::size() const { return state_->entries.size(); }
size_t Tape::replayed() const { return state_->replayed; }
void Tape::shorten(size_t size) {
  while (state_->entries.size() > size) state_->entries.pop_back();
}

bool Tape::State::chooses(const std::string& name) {
  if (options.each.contains(name)) return true;
  return options.every_second.contains(name) && seen++ % 2 == 0;
}

void Tape::State::keep(const std::string& name, TapeResults results) {
  Entry& entry = entries.emplace_back();
  entry.name = name;
  if (options.first.contains(name)) std::fill(results.begin() + 1, results.end(), at::Tensor());
  for (const c10::IValue& result : results)
    each_tensor(result, [&](const at::Tensor& tensor) { entry.held.emplace_back(tensor); });
  entry.results = std::move(results);
}

std::optional<TapeResults> Tape::State::next(const std::string& name) {
  if (position == entries.size())
    throw InternalError({.what = fmt::format("{} runs again, but no result of it was kept", name),
                         .why = "the second pass runs more operators than the first",
                         .fix = "make the recomputed block depend on its inputs alone"});
  Entry& entry = entries[position];
  if (entry.name != name)
    throw InternalError(
        {.what = fmt::format("operator {} of the second pass is {}, of the first pass {}", position,
                             name, entry.name),
         .why = "the two passes run different operators",
         .fix = "make the recomputed block depend on its inputs alone"});
  ++position;
  if (entry.results) ++replayed;
  entry.held.clear();
  return std::exchange(entry.results, std::nullopt);
}

void Tape::State::written(const at::Tensor& tensor) {
  for (Entry& entry : entries) {
    if (!entry.results) continue;
    bool same = false;
    for (const Kept& kept : entry.held)
      same = same || (kept.tensor().defined() && kept.tensor().is_alias_of(tensor));
    if (!same) continue;
    entry.results.reset();
    entry.held.clear();
  }
}

struct TapeScope::State {
  explicit State(Tape::State* tape, TapeMode mode)
      : before(std::exchange(tape_use, {.tape = tape, .mode = mode})) {
    if (tape == nullptr) return;
    interpose.emplace(c10::DispatchKey::Fake);
    tape->position = tape->seen = 0;
  }
  ~State() { tape_use = before; }

  TapeUse before;
  std::optional<c10::impl::IncludeDispatchKeyGuard> interpose;
};

TapeScope::TapeScope(Tape* tape, TapeMode mode)
    : state_(std::make_unique<State>(tape != nullptr ? &tape->state() : nullptr, mode)) {}

TapeScope::~TapeScope() = default;

}  // namespace braid::memory
