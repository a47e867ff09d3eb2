// SPDX-License-Identifier: BSD-3-Clause
// What a step of a config takes: the same model, optimizer and step code as in training, on dry
// tensors (no memory, no GPU, milliseconds) or on real ones (to prove the dry ones right).
//
//   train::Measured m = train::measure(options, {.device = {c10::kCUDA, 0}});
//   int64_t bytes = m.second_step.peak.bytes;   // and by kind: m.second_step.peak.by_kind
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

struct Ranks;

struct MeasureOptions {
  c10::Device device = c10::kCPU;
  bool dry = true;
  // One rank of a job of so many, over groups that are not there: every axis of the mesh counts. As
  // it is: all of the model in one process.
  int64_t world = 1, rank = 0;
  const Ranks* ranks = nullptr;  // over these groups instead, all of their ranks together
  bool batch_ahead = true;       // CUDA: the next batch is there beside the step, as in training

  int64_t batches() const { return device.is_cuda() && batch_ahead ? 2 : 1; }
};

// One part of training, from its beginning with what was alive then.
struct Phase {
  memory::Peak peak;
  memory::Peak without_scratch;                    // peak of all but the kernels' workspaces
  std::map<std::string, memory::Scratch> scratch;  // of kernels, by operator
  int64_t before = 0, left = 0;                    // alive at its beginning and at its end
  int64_t host = 0;    // CUDA: most on the host, page-locked and not, each by itself
  int64_t pinned = 0;  // page-locked alone
  // Real CUDA: the allocator's own count, over that at the start, of its peak and at its end.
  int64_t requested = 0, requested_left = 0;
  int64_t reserved = 0;  // real CUDA: most that the allocator had from the driver, in all
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

// The history of a step like all but the first one, in `ledger`.
void watch_step(memory::Ledger& ledger, const RunOptions& options, MeasureOptions how = {});

// Seconds of each of `steps` real steps after one that is not timed.
std::vector<double> time_steps(const RunOptions& options, c10::Device device, int steps);

// The parts that memory.recompute chooses between, as a rank has them, in order.
std::vector<std::string> segment_names(const RunOptions& options, MeasureOptions how = {});

// A batch of zeros in the shapes that the config means, without opening its data.
data::Batch empty_batch(const RunOptions& options, int64_t samples, c10::Device device);

}  // namespace braid::train
