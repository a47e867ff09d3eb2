// SPDX-License-Identifier: BSD-3-Clause
// How the ranks of a run spent their steps, and which of them the others wait for. Synchronous
// ranks all have the same wall time: the slow one is the one that waits least for the others.
//
//   RankSums sums;
//   sums.add(record.ranks);
//   if (const auto slow = straggler_of(sums.means())) say(slow->rank, slow->above);
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "braid/core/record.h"

namespace braid::report {

// A step of more ranks than this is kept as a spread and its slowest ranks, so that a line of
// log.jsonl does not grow with the world.
inline constexpr size_t most_ranks_kept = 64;
inline constexpr size_t slowest_kept = 8;

double busy_time(const RankTime& time);  // what it makes others wait for: all but comm_wait
double own_work(const RankTime& time);   // busy_time less the wait for its own batch

// Ranks by busy_time, the longest first; equal ones by rank.
std::vector<size_t> slowest_first(const std::vector<RankTime>& ranks);

struct Spread {
  double min = 0, median = 0, max = 0;
};
Spread spread_of(std::vector<double> values);  // zeros for none
Spread busy_spread(const std::vector<RankTime>& ranks);

struct NumberedRank {
  int64_t rank = 0;
  RankTime time = {};
};

struct RankSpread {
  int64_t step = 0;
  int64_t ranks = 0;  // of the world; 0: not known
  Spread seconds = {}, busy = {}, own_work = {}, data_wait = {}, comm_wait = {};
  std::vector<NumberedRank> slowest = {};  // the slowest first
};
RankSpread spread_of(const std::vector<RankTime>& ranks, size_t most_slowest = slowest_kept);

// A rank whose busy_time is more than a tenth above the median.
struct Straggler {
  int64_t rank = 0;
  double above = 0;  // 0.14: 14 % above the median
};
std::optional<Straggler> straggler_of(const std::vector<RankTime>& ranks);

// Sums over some steps, by rank.
class RankSums {
 public:
  void add(const std::vector<RankTime>& ranks);  // another number of ranks begins anew
  void fade(double keep);                        // old steps count less
  std::vector<RankTime> means() const;           // empty if nothing was added

 private:
  double steps_ = 0;
  std::vector<RankTime> sums_;
};

}  // namespace braid::report
