// SPDX-License-Identifier: BSD-3-Clause
// The rungs of the ladder that a person climbs until a run fits: each adds one thing.
#pragma once
#include <string>
#include <vector>

#include "plan/space.h"

namespace braid::plan {

struct Rung {
  std::string question;
  std::vector<Choice> tries;  // any of them will do; those that change least first
  std::string cannot;         // why there are none
};
// Cheapest first. Of one GPU those that need others are left out.
std::vector<Rung> rungs_of(const Request& request, const Base& base);

std::vector<std::string> sets_of(const Choice& choice);  // --set mesh.shard=8

}  // namespace braid::plan
