// SPDX-License-Identifier: BSD-3-Clause
// How fast a run goes, in words: "37.5 samples/s, 54.1 TFLOP/s, data wait 3 %".
#pragma once
#include <string>
#include <vector>

#include "braid/core/record.h"

namespace braid::report {

// Sums over some steps: single ones jump about too much to be read.
class Pace {
 public:
  void add(const StepRecord& record);
  void fade(double keep);  // old steps count less; for a display that never begins anew
  // samples/s, tokens/s of a token model, TFLOP/s, MFU if the peak is known.
  std::vector<std::string> words(double peak_flops) const;
  double wait_share() const { return rate(data_wait_); }
  double comm_share() const { return rate(comm_wait_); }

 private:
  double rate(double amount) const { return seconds_ > 0 ? amount / seconds_ : 0; }
  double samples_ = 0, tokens_ = 0, seconds_ = 0, data_wait_ = 0, comm_wait_ = 0, tera_flop_ = 0;
};

// Time to the end from the mean of the steps and evaluations of this process. The first step is
// left out once there are others: it warms up.
class Forecast {
 public:
  void add_step(double seconds);
  void add_pause(double seconds) { pauses_ += seconds; }
  double seconds_left(int64_t steps) const;

 private:
  int64_t steps_ = 0;
  double first_ = 0, others_ = 0, pauses_ = 0;
};

std::string clock_text(double seconds);   // 1:02:09
std::string short_number(double number);  // four digits or so

}  // namespace braid::report
