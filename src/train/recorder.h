// SPDX-License-Identifier: BSD-3-Clause
// Turns results that still lie on the device into records. On a GPU they are copied to the host
// behind their step and read some steps late, never those of the step that still runs: the host
// does not wait for the device. On the CPU they are read at once.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "braid/core/accelerator.h"
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
  static void read(StepRecord& record, const StepResult& result);

  report::Sink& sink_;
  int64_t read_every_;
  struct Late {
    StepRecord record;
    StepResult result;              // on the host, once it is there
    std::unique_ptr<Moment> there;  // null: it is
  };
  void flush_all_but(size_t newest);

  std::vector<Late> pending_;
};

}  // namespace braid::train
