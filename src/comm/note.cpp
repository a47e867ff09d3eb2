// SPDX-License-Identifier: BSD-3-Clause
#include "comm/note.h"

#include <fmt/format.h>

namespace braid::comm {

void Note::write(std::string_view state, std::string call) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  call_ = std::move(call);
  since_ = Clock::now();
}

void Note::begin(std::string call) { write("started", std::move(call)); }
void Note::wait(const std::string& call) { write("waits in", call); }
void Note::end(const std::string& call) { write("has finished", call); }

std::string Note::text() const {
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(Clock::now() - since_).count();
  if (call_.empty()) return state_;
  return fmt::format("{} {}, {:.1f} s ago", state_, call_, seconds);
}

}  // namespace braid::comm
