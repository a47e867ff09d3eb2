// SPDX-License-Identifier: BSD-3-Clause
#include "plan/calibrate_clock.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include "braid/core/accelerator.h"

namespace braid::plan {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr double round_seconds = 5e-3;
// Below, the host would be what is measured: it takes 100 us and more for an operator's backward
// pass, whatever its size.
constexpr double short_run = 1e-3;

}  // namespace

DeviceClock::DeviceClock(c10::Device device) : device_(device) {
  if (!device.is_cuda()) return;
  factor_ = at::zeros({8192, 8192}, at::TensorOptions().device(device).dtype(c10::kHalf));
  block(2);
  finish();
  const auto start = Clock::now();
  block(4);
  finish();
  block_seconds_ = since(start) / 4;
}

void DeviceClock::finish() {
  if (device_.is_cuda()) accelerator()->synchronize(device_.index());
}

void DeviceClock::block(int64_t times) {
  for (int64_t i = 0; i < times; ++i) at::mm(factor_, factor_);
}

double DeviceClock::round(const std::function<void()>& run, int64_t times) {
  finish();
  const auto start = Clock::now();
  for (int64_t i = 0; i < times; ++i) run();
  finish();
  return since(start) / static_cast<double>(times);
}

// While the device is busy with something long the host gets ahead of it; then kernels follow one
// another without gaps.
double DeviceClock::behind(const std::function<void()>& run, int64_t times) {
  finish();
  auto start = Clock::now();
  for (int64_t i = 0; i < times; ++i) run();
  const double host = since(start);
  finish();
  const auto blocks = static_cast<int64_t>(std::ceil(1.5 * host / block_seconds_)) + 1;
  start = Clock::now();
  block(blocks);
  finish();
  const double alone = since(start);
  start = Clock::now();
  block(blocks);
  for (int64_t i = 0; i < times; ++i) run();
  finish();
  return std::max(since(start) - alone, 1e-7 * static_cast<double>(times)) /
         static_cast<double>(times);
}

double DeviceClock::steady_seconds(const std::function<void()>& run) {
  constexpr double warm = 0.8, timed = 0.4;
  const double each = std::max(round(run, 3), 1e-6);
  round(run, static_cast<int64_t>(std::ceil(warm / each)));
  return round(run, static_cast<int64_t>(std::ceil(timed / each)));
}

double DeviceClock::seconds(const std::function<void()>& run) {
  run();
  const double first = round(run, 1);
  const double guess = first > round_seconds ? first : round(run, 3);
  const bool quick = device_.is_cuda() && guess < short_run;
  const auto times =
      static_cast<int64_t>(std::clamp(round_seconds / guess, quick ? 20.0 : 1.0, 300.0));
  std::array<double, 3> rounds;
  for (double& each : rounds) {
    each = quick ? behind(run, times) : round(run, times);
    if (each * static_cast<double>(times) > 0.5) return each;  // long enough to be steady
  }
  std::sort(rounds.begin(), rounds.end());
  return rounds[1];
}

}  // namespace braid::plan
