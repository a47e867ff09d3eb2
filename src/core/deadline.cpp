// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/deadline.h"

#include <algorithm>
#include <utility>

namespace braid {
namespace {

thread_local Deadline::Instant valid_deadline = Deadline::Instant::max();

Deadline::Instant in_seconds(double seconds) {
  constexpr double a_century = 3e9;
  if (seconds <= 0 || seconds > a_century) return Deadline::Instant::max();
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(
             std::chrono::duration<double>(seconds));
}

}  // namespace

Deadline::Deadline(double seconds) : Deadline(in_seconds(seconds)) {}
Deadline::Deadline(Instant end)
    : before_(std::exchange(valid_deadline, std::min(valid_deadline, end))) {}
Deadline::~Deadline() { valid_deadline = before_; }

Deadline::Instant Deadline::now_valid() { return valid_deadline; }

void check_deadline(Deadline::Instant end) {
  if (end != Deadline::Instant::max() && std::chrono::steady_clock::now() > end) throw OutOfTime();
}

void check_deadline() { check_deadline(valid_deadline); }

}  // namespace braid
