// SPDX-License-Identifier: BSD-3-Clause
// What the section "Ranks" of report.html shows of a run.
#pragma once
#include "report/page_json.h"

namespace braid::report {

// Means by rank over the run and over its last tenth; of a world too big to be kept rank by rank,
// the mean spread and the slowest ranks. null: one rank alone.
PageJson ranks_json(const RunLog& log);

// Busy time of the slowest rank and of the median over the run, in milliseconds; null: one rank.
PageJson rank_curves_json(const RunLog& log);

}  // namespace braid::report
