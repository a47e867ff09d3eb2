// SPDX-License-Identifier: BSD-3-Clause
#include "train/profiler_clock.h"

#include <ATen/ops/empty.h>

#include <chrono>
#include <cstdlib>
#include <limits>

namespace braid::train {
namespace {

constexpr int clock_questions = 10;  // the quickest answer counts

int64_t time_of_day() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

void answer_clock(const comm::Group& control, int rank, const at::Tensor& word) {
  for (int i = 0; i < clock_questions; ++i) {
    control.recv(word, rank).wait();
    *word.mutable_data_ptr<int64_t>() = time_of_day();
    control.send(word, rank).wait();
  }
}

int64_t ask_clock(const comm::Group& control, const at::Tensor& word) {
  int64_t best = std::numeric_limits<int64_t>::max(), offset = 0;
  for (int i = 0; i < clock_questions; ++i) {
    const int64_t asked = time_of_day();
    control.send(word, 0).wait();
    control.recv(word, 0).wait();
    const int64_t answered = time_of_day();
    if (answered - asked >= best) continue;
    best = answered - asked;
    offset = *word.const_data_ptr<int64_t>() - (asked + best / 2);
  }
  return std::abs(offset) <= best ? 0 : offset;
}

}  // namespace

int64_t clock_offset(const comm::Group& control) {
  if (control.size() == 1) return 0;
  const at::Tensor word = at::empty({1}, at::TensorOptions(c10::kLong));
  *word.mutable_data_ptr<int64_t>() = 0;
  if (control.rank() > 0) return ask_clock(control, word);
  for (int rank = 1; rank < control.size(); ++rank) answer_clock(control, rank, word);
  return 0;
}

}  // namespace braid::train
