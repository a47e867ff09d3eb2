// SPDX-License-Identifier: BSD-3-Clause
// What two pieces of a tensor have in common, run by run.
//
//   std::vector<Run> wanted = ascending_runs(piece, count);
//   for (const CommonRun& run : take_common(wanted, ascending_runs(stored, stored_count))) ...
//   wanted.empty();   // all of it was there
#pragma once
#include <cstdint>
#include <vector>

#include "braid/core/param.h"

namespace braid::checkpoint {

// Elements that stand together in two pieces.
struct CommonRun {
  int64_t in_wanted = 0, in_piece = 0, count = 0;
  bool operator==(const CommonRun&) const = default;
};

// The runs of a piece by their place in the whole.
std::vector<Run> ascending_runs(const Piece& piece, int64_t count);

// Takes out of `wanted` what `piece` has; both ascend. Linear in the number of runs.
std::vector<CommonRun> take_common(std::vector<Run>& wanted, const std::vector<Run>& piece);

// No index of some dimension is in both boxes.
bool boxes_disjoint(const std::vector<Cut>& a, const std::vector<Cut>& b);

// The same box written in one way only: neighbouring ranges are joined, cuts that leave everything
// are left out, dimensions ascend.
std::vector<Cut> plain_cuts(std::vector<Cut> cuts, const std::vector<int64_t>& whole);

}  // namespace braid::checkpoint
