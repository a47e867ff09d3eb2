// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run in the words of the console.
//
//   for (const std::string& line : rank_table(sums.means())) log.info(line);
#pragma once
#include <string>
#include <vector>

#include "report/ranks.h"

namespace braid::report {

// "4 ranks (data 2, shard 2), latency of an all-reduce 0.12 ms"
std::string ranks_text(const RunInfo& info);
// "slowest rank 2 (+14 %)", or nothing where no rank stands out.
std::string straggler_text(const std::vector<RankTime>& means);
// A title and a row a rank, the slowest marked; of more than 16 ranks the slowest 8 and the spread
// of all.
std::vector<std::string> rank_table(const std::vector<RankTime>& means);

}  // namespace braid::report
