// SPDX-License-Identifier: BSD-3-Clause
// What a step of a config takes: the same model, optimizer and step code as in training, on dry
// tensors (no memory, no GPU, milliseconds) or on real ones (to prove the dry ones right).
//
//   train::Measured m = train::measure(options, {.device = {c10::kCUDA, 0}});
//   m.second_step.peak.bytes, m.second_step.peak.by_kind, m.flops
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "braid/data/loader.h"
#include "braid/memory/ledger.h"
#include "braid/memory/operator_log.h"
#include "braid/train/options.h"

namespace braid::train {

struct MeasureOptions {
  c10::Device device = c10::kCPU;
  bool dry = true;
  // One rank of a job of so many, over groups that are not there: every axis of the mesh counts. As
  // it is: all of the model in one process.
  int64_t world = 1, rank = 0;
};

// One part of training, from its beginning with what was alive then.
struct Phase {
  memory::Peak peak;
  memory::Peak without_scratch;                    // peak of all but the kernels' workspaces
  std::map<std::string, memory::Scratch> scratch;  // of kernels, by operator
  int64_t before = 0, left = 0;                    // alive at its beginning and at its end
  int64_t requested =
      0;  // real CUDA: the allocator's own count of its peak, over that at the start
};

struct Measured {
  Phase backward;           // forward and backward pass alone
  Phase first_step;         // makes the optimizer's states
  Phase second_step;        // and every later one
  Phase evaluation;         // a batch with loss and metrics
  memory::OperatorLog log;  // of the second step
  double seconds = 0;       // that measuring took
};

Measured measure(const RunOptions& options, MeasureOptions how = {});

// The operators of the first whole step.
memory::OperatorLog log_step(const RunOptions& options, MeasureOptions how = {});

// A batch of zeros in the shapes that the config means, without opening its data.
data::Batch empty_batch(const RunOptions& options, int64_t samples, c10::Device device);

}  // namespace braid::train
