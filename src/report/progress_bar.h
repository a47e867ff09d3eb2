// SPDX-License-Identifier: BSD-3-Clause
// One live line on a terminal.
//
//   ProgressBar bar({.is_tty = true, .columns = 100});
//   bar.draw({.done = 10, .total = 200, .words = {"loss 0.31", "42 samples/s"}});
//   bar.clear();   // before anything else is printed
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "braid/report/sink.h"

namespace braid::report {

struct Progress {
  int64_t done = 0;
  int64_t total = 0;  // 0: not known, and no bar is drawn
  std::vector<std::string>
      words;  // the most important first: the last are left out where the line is too short
};

std::string progress_line(const Progress& progress, int columns);

class ProgressBar {
 public:
  explicit ProgressBar(Terminal terminal) : terminal_(terminal) {}
  bool due() const;  // at most ten times a second
  void draw(const Progress& progress);
  void clear();

 private:
  void put(const std::string& text) const;

  Terminal terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace braid::report
