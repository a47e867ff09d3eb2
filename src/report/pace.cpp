// SPDX-License-Identifier: BSD-3-Clause
#include "report/pace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/core/units.h"

namespace braid::report {

void Pace::add(const StepRecord& record) {
  samples_ += static_cast<double>(record.samples);
  tokens_ += static_cast<double>(record.tokens);
  seconds_ += record.seconds;
  data_wait_ += record.data_wait;
  comm_wait_ += record.comm_wait;
  tera_flop_ += record.tflops * record.seconds;
}

void Pace::fade(double keep) {
  for (double* sum : {&samples_, &tokens_, &seconds_, &data_wait_, &comm_wait_, &tera_flop_})
    *sum *= keep;
}

std::vector<std::string> Pace::words(double peak_flops) const {
  std::vector<std::string> words = {short_number(rate(samples_)) + " samples/s"};
  if (tokens_ > 0) words.push_back(short_number(rate(tokens_)) + " tokens/s");
  const double tflops = rate(tera_flop_);
  if (tflops > 0) words.push_back(fmt::format("{:.3g} TFLOP/s", tflops));
  if (tflops > 0 && peak_flops > 0)
    words.push_back(fmt::format("MFU {:.1f} %", 100 * tflops * 1e12 / peak_flops));
  return words;
}

void Forecast::add_step(double seconds) { (steps_++ == 0 ? first_ : others_) += seconds; }

double Forecast::seconds_left(int64_t steps) const {
  if (steps_ == 0) return 0;
  const double step = steps_ == 1 ? first_ : others_ / static_cast<double>(steps_ - 1);
  const double pause = pauses_ / static_cast<double>(steps_);
  return (step + pause) * static_cast<double>(std::max<int64_t>(steps, 0));
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::max(seconds, 0.0));
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string short_number(double number) {
  const double size = std::abs(number);
  const int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return fmt::format("{:.{}f}", number, digits);
}

}  // namespace braid::report
