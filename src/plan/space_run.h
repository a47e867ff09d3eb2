// SPDX-License-Identifier: BSD-3-Clause
// Dry runs for a search. Of a step with many passes without a pipeline three are run: those between
// the first and the last are all alike.
//
//   LayoutRun run = quick_layout(options, 64, {});   // as dry_layout, sooner
#pragma once
#include <cstdint>

#include "braid/plan/layout.h"

namespace braid::plan {

// Operators, messages and peaks of dry_layout(options, world, how).
LayoutRun quick_layout(const train::RunOptions& options, int64_t world, const LayoutOptions& how);

// A trace of three passes as one of `micros`.
RankTrace with_passes(const RankTrace& three, int64_t micros);

}  // namespace braid::plan
