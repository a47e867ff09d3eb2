// SPDX-License-Identifier: BSD-3-Clause
// What a rank does now, for the one who asks why it does not go on. Written by the rank, read by
// anybody.
#pragma once
#include <chrono>
#include <mutex>
#include <string>

namespace braid::comm {

class Note {
 public:
  void begin(std::string call);
  void wait(const std::string& call);
  void end(const std::string& call);
  std::string text() const;

 private:
  using Clock = std::chrono::steady_clock;
  void write(std::string_view state, std::string call);
  mutable std::mutex mutex_;
  std::string state_ = "no collective yet", call_;
  Clock::time_point since_ = Clock::now();
};

}  // namespace braid::comm
