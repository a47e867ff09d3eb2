// SPDX-License-Identifier: BSD-3-Clause
// What a search hands over: plans in their order, as many as asked for, and what its time limit
// left open.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/plan/search.h"

namespace braid::plan {

struct LeftOpen {  // by the time limit
  int64_t choices = 0;
  double fastest = 0;  // samples/s that none of them passes
};

void sort_plans(std::vector<Plan>& plans);               // fastest first, then the nearest misses
void cut_plans(std::vector<Plan>& plans, int64_t most);  // of sorted ones; some misses stay
std::string late_note(const Found& found, const LeftOpen& left, double seconds);
Found nothing_in_time(double seconds);  // the limit passed before there were choices

}  // namespace braid::plan
