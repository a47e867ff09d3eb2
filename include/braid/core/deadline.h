// SPDX-License-Identifier: BSD-3-Clause
// A time limit for what runs in a scope, also deep inside of a dry run.
//
//   try {
//     const Deadline limit(5);   // seconds
//     run_dry();                 // its operators call check_deadline()
//   } catch (const OutOfTime&) {
//   }
//
// Scopes of one thread nest, and the earliest limit holds. Dry operators, which run for most of the
// time, look at it wherever they run; loops without operators call check_deadline() themselves.
#pragma once
#include <chrono>
#include <exception>

namespace braid {

class OutOfTime final : public std::exception {
 public:
  const char* what() const noexcept override { return "the time limit has passed"; }
};

class Deadline {
 public:
  using Instant = std::chrono::steady_clock::time_point;

  explicit Deadline(double seconds);  // from now on; 0 or less: no limit of its own
  explicit Deadline(Instant end);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  static Instant now_valid();  // of this thread; Instant::max() without a limit

 private:
  Instant before_;
};

void check_deadline(Deadline::Instant end);  // throws OutOfTime once it has passed
void check_deadline();                       // the same for the limit of this thread

}  // namespace braid
