// SPDX-License-Identifier: BSD-3-Clause
#include "memory/tape_state.h"

#include <fmt/format.h>

#include <utility>

#include "braid/core/error.h"

namespace braid::memory {

Tape::Tape(std::set<std::string> names) : state_(std::make_unique<State>()) {
  state_->names = std::move(names);
}
Tape::~Tape() = default;
Tape::Tape(Tape&&) noexcept = default;
Tape& Tape::operator=(Tape&&) noexcept = default;

size_t Tape::size() const { return state_->entries.size(); }
size_t Tape::replayed() const { return state_->position; }

std::vector<c10::IValue> Tape::State::next(const std::string& name) {
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
  return std::exchange(entry.results, {});
}

}  // namespace braid::memory
