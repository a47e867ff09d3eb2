// SPDX-License-Identifier: BSD-3-Clause
// Who writes what: each element that the ranks hold is written by one of those that hold it.
//
//   std::vector<Holding> mine = holdings_of(state);
//   for (const WrittenRun& run : runs_of(holdings_of_all_ranks, rank))   // of
//   state.tensors[run.name]
//     write(run.name, run.first, run.count);
//
// What several ranks hold alike is laid out as one line of bytes in the order of the names, and the
// line is cut into equal parts: a rank writes few pieces, and all ranks write about as much. Where
// boxes of several ranks overlap in part, the first one has what they share.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/core/state.h"

namespace braid::checkpoint {

// Elements of a tensor that a rank holds.
struct Holding {
  std::string name;
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> whole;    // shape of the whole tensor
  int64_t first = 0, count = 0;  // of the box
  std::vector<Cut> cuts = {};    // plain_cuts(); none: the box is the whole
  bool operator==(const Holding&) const = default;
  auto operator<=>(const Holding&) const = default;
};

struct WrittenRun {
  std::string name;
  int64_t first = 0, count = 0;  // of the elements that the rank holds
  bool operator==(const WrittenRun&) const = default;
};

std::vector<Holding> holdings_of(const State& state);
std::string to_text(const std::vector<Holding>& holdings);
std::vector<Holding> holdings_from(const std::string& text);

// Throws StorageError if some elements are held by no rank, or ranks differ in a dtype or shape.
std::vector<WrittenRun> runs_of(const std::vector<std::vector<Holding>>& ranks, int rank);

}  // namespace braid::checkpoint
