// SPDX-License-Identifier: BSD-3-Clause
// Makes a run fit into memory, by dry runs of its own step: how large a micro-batch may be, what
// has to be computed again for a budget of bytes, and which changes of a config would help.
//
//   train::Fitted fitted = train::fit_to_memory(options, ranks);   // auto and budget are filled in
//   for (const train::Change& change : train::changes_to_fit(options, how, room.bytes))
//     if (change.fits) std::cout << change.sets << change.peak;
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/train/measure.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

// Bytes that tensors of a rank may take.
struct Room {
  int64_t bytes = 0;  // less than `whole` on a GPU: an allocator leaves gaps
  int64_t whole = 0;
  std::string of;  // memory.limit, the free memory of cuda:0, ...
};
Room room_of(const RunOptions& options, c10::Device device, const Ranks& ranks = {});

// Most bytes that a run takes on its device: of its first step, a later one and, where it has data
// for it, its evaluation.
struct Predicted {
  memory::Peak peak;
  int64_t bytes = 0;            // of the peak, with all of the batch
  double recomputed_flops = 0;  // of a step, in the backward pass
};
Predicted predict_peak(const RunOptions& options, const MeasureOptions& how);
MeasureOptions measure_as(const RunOptions& options, const Ranks& ranks);  // dry, as this rank

struct Change {
  std::string sets;   // what to type: --set train.micro_batch=4
  std::string costs;  // what it costs, in words
  int64_t peak = 0;   // predicted
  bool fits = false;
};
// Cheapest first; what the checks of a config refuse is left out. Several at once where no single
// one fits. Stops trying after `seconds`.
std::vector<Change> changes_to_fit(const RunOptions& options, const MeasureOptions& how,
                                   int64_t room, double seconds = 8);

// Samples of the largest micro-batch whose step fits; 0: none does.
int64_t largest_micro_batch(const RunOptions& options, const MeasureOptions& how, int64_t room);

// Of each block of this rank, in the order of the blocks: what is computed again so that the peak
// is at most `bytes` and the least FLOPs are spent on it.
struct RecomputePlan {
  std::map<std::string, memory::Again> blocks;  // that are not named: nothing
  int64_t peak = 0;                             // predicted
  int64_t moves = 0;                            // so many steps from nothing towards everything
  bool fits = false;                            // false: not even with everything computed again
};
// `moves`: not fewer than so many, as other ranks of the stage need them.
RecomputePlan recompute_plan(const RunOptions& options, const MeasureOptions& how, int64_t bytes,
                             int64_t moves = 0);

struct Fitted {
  RunOptions options;              // with train.micro_batch and memory.plan filled in
  std::vector<std::string> lines;  // what was chosen, for the log
};
// All ranks together. Throws MemoryError, with a report in the run's folder, if nothing fits.
Fitted fit_to_memory(const RunOptions& options, const Ranks& ranks);

}  // namespace braid::train
