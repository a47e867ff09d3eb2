// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "braid/report/html.h"
#include "report/records.h"

namespace braid::report {

RunSummary summary_of(const RunLog& log);
std::optional<BestValue> best_of(const RunLog& log, const std::string& metric);

}  // namespace braid::report
