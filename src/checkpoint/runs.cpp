// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/runs.h"

#include <algorithm>

namespace braid::checkpoint {
namespace {

int64_t end_of(const Run& run) { return run.from + run.count; }

// The elements begin .. end of the whole out of a run.
Run part_of(const Run& run, int64_t begin, int64_t end) {
  return {begin, run.at + begin - run.from, end - begin};
}

bool ranges_meet(const Cut& a, const Cut& b) {
  for (const Range& x : a.ranges)
    for (const Range& y : b.ranges)
      if (x.begin < y.end && y.begin < x.end) return true;
  return false;
}

}  // namespace

std::vector<Run> ascending_runs(const Piece& piece, int64_t count) {
  std::vector<Run> runs = braid::runs_of(piece, count);
  const auto before = [](const Run& a, const Run& b) { return a.from < b.from; };
  if (!std::is_sorted(runs.begin(), runs.end(), before))
    std::sort(runs.begin(), runs.end(), before);
  return runs;
}

std::vector<CommonRun> take_common(std::vector<Run>& wanted, const std::vector<Run>& piece) {
  std::vector<CommonRun> common;
  std::vector<Run> rest;
  size_t next = 0;  // of piece: those before it end before what is looked at
  for (const Run& run : wanted) {
    int64_t reached = run.from;
    while (next < piece.size() && end_of(piece[next]) <= reached) ++next;
    for (size_t i = next; i < piece.size() && piece[i].from < end_of(run); ++i) {
      const int64_t begin = std::max(reached, piece[i].from);
      const int64_t end = std::min(end_of(run), end_of(piece[i]));
      if (begin > reached) rest.push_back(part_of(run, reached, begin));
      common.push_back(
          {run.at + begin - run.from, piece[i].at + begin - piece[i].from, end - begin});
      reached = end;
    }
    if (reached < end_of(run)) rest.push_back(part_of(run, reached, end_of(run)));
  }
  wanted = std::move(rest);
  return common;
}

bool boxes_disjoint(const std::vector<Cut>& a, const std::vector<Cut>& b) {
  for (const Cut& x : a)
    for (const Cut& y : b)
      if (x.dim == y.dim && !ranges_meet(x, y)) return true;
  return false;
}

std::vector<Cut> plain_cuts(std::vector<Cut> cuts, const std::vector<int64_t>& whole) {
  for (Cut& cut : cuts) {
    std::vector<Range> joined;
    for (const Range& range : cut.ranges) {
      if (range.size() == 0) continue;
      if (!joined.empty() && joined.back().end == range.begin)
        joined.back().end = range.end;
      else
        joined.push_back(range);
    }
    cut.ranges = std::move(joined);
  }
  std::erase_if(cuts, [&](const Cut& cut) {
    return cut.ranges == std::vector<Range>{{0, whole.at(static_cast<size_t>(cut.dim))}};
  });
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

}  // namespace braid::checkpoint
