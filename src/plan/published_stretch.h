// SPDX-License-Identifier: BSD-3-Clause
// The time of a step with many blocks, micro-batches and stages, from dry runs with few of each.
// Blocks are alike; once a pipeline is full every further micro-batch takes as long as the one
// before, and so does the way through every further stage like the ones in the middle.
#pragma once
#include <functional>

#include "braid/plan/simulate.h"

namespace braid::plan {

struct Extent {
  int64_t stages = 1;  // ranks of the pipeline
  int64_t micros = 1;
  int64_t blocks = 1;  // of a stage; with chunks: of each
  bool operator==(const Extent&) const = default;
};

// The run, of a gpt, with other numbers of them.
train::RunOptions resized(const train::RunOptions& options, const Extent& from, const Extent& to);

// The parts of the step of `whole` extent, out of those that `parts` gives for small ones.
using PartsOf = std::function<TimeParts(const Extent&)>;
TimeParts stretched(const Extent& whole, const PartsOf& parts);

double total(const TimeParts& parts);

}  // namespace braid::plan
