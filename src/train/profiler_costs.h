// SPDX-License-Identifier: BSD-3-Clause
// What the operators of a step compute and move, as the summary of a profile wants it.
#pragma once
#include "braid/memory/operator_log.h"
#include "braid/report/trace.h"

namespace braid::train {

report::RankProfile costs_of(const memory::OperatorLog& log);  // of one step; without file and rank

}  // namespace braid::train
