// SPDX-License-Identifier: BSD-3-Clause
// Turns results that still lie on the device into records. On a GPU values are read a few steps
// late, all at once, so that the host never waits inside a step; on the CPU at once.
#pragma once
#include <utility>
#include <vector>

#include "braid/core/record.h"
#include "braid/report/sink.h"
#include "braid/train/step.h"

namespace braid::train {

class Recorder {
 public:
  Recorder(report::Sink& sink, int64_t read_every) : sink_(sink), read_every_(read_every) {}

  void add(StepRecord record, StepResult result);
  void flush();  // throws NotFiniteError at the first loss that is not finite, after the records
                 // before it went out

  double loss_sum = 0;  // of the steps read since reset
  int64_t steps = 0;
  int64_t samples = 0;

 private:
  void read(StepRecord& record, const StepResult& result);

  report::Sink& sink_;
  int64_t read_every_;
  std::vector<std::pair<StepRecord, StepResult>> pending_;
};

}  // namespace braid::train
