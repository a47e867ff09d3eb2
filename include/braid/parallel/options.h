// SPDX-License-Identifier: BSD-3-Clause
// The `parallel:` section of a config: how the axes of the mesh do their work.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/core/options.h"
#include "braid/parallel/context.h"
#include "braid/parallel/schedule.h"

namespace braid::parallel {

struct ParallelOptions {
  bool sequence = true;   // with tensor: norms and residuals hold a share of the tokens
  bool regather = false;  // with sequence: less memory for two more gathers a layer
  int64_t overlap = 1;    // pieces in which tokens travel while matmuls run
  ContextMethod context = ContextMethod::gather;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  std::string schedule_file = {};   // an own list of actions
  int64_t chunks = 1;               // stages a rank, of the interleaved schedule
  std::vector<int64_t> split = {};  // blocks of each stage; empty: by FLOPs
};
void describe(Fields& fields, ParallelOptions& options);

}  // namespace braid::parallel
