// SPDX-License-Identifier: BSD-3-Clause
// A run of one rank up to its first step, for dry runs and measurements.
#pragma once
#include <memory>

#include "braid/core/accelerator.h"
#include "braid/data/loader.h"
#include "braid/nn/model.h"
#include "braid/train/measure.h"
#include "braid/train/ranks.h"
#include "train/step_parts.h"

namespace braid::train {

struct Rig {
  Rig(const RunOptions& given, const MeasureOptions& how);

  nn::Pass pass() const {
    return {.training = true, .seed = static_cast<uint64_t>(options.seed), .step = 0};
  }
  void begin();  // what a whole batch weighs is said before a step
  void backward();
  void whole_step();
  void evaluate();

  RunOptions options;
  Ranks ranks;
  std::unique_ptr<nn::Model> model;
  StepParts parts;
  data::Batch batch;
  data::Batch ahead;  // on a GPU: the loader's second one
};

// The allocator of a real GPU counts for itself: a witness beside the ledger.
class Witness {
 public:
  explicit Witness(const MeasureOptions& how);
  int64_t peak() const { return gpu_ == nullptr ? 0 : gpu_->peak_requested(index_) - before_; }
  int64_t left() const { return gpu_ == nullptr ? 0 : gpu_->requested(index_) - before_; }
  int64_t reserved() const { return gpu_ == nullptr ? 0 : gpu_->peak_reserved(index_); }

 private:
  Accelerator* gpu_;
  int index_;
  int64_t before_ = 0;
};

Phase phase_so_far(const memory::Ledger& ledger, const MeasureOptions& how);

// `run` with a history of its own.
template <class Run>
Phase phase_of(memory::Ledger& ledger, const MeasureOptions& how, const Run& run) {
  ledger.begin();
  const Witness witness(how);
  const int64_t before = ledger.live(memory::place_of(how.device));
  run();
  const int64_t requested = witness.peak(), left = witness.left(), reserved = witness.reserved();
  Phase phase = phase_so_far(ledger, how);
  phase.before = before;
  phase.requested = requested;
  phase.requested_left = left;
  phase.reserved = reserved;
  return phase;
}

}  // namespace braid::train
