// SPDX-License-Identifier: BSD-3-Clause
// Where a climb begins, and what is one step away: something good soon, where the whole space takes
// long. Internal.
#pragma once
#include <vector>

#include "plan/space.h"

namespace braid::plan {

// Layouts that one would try first, with as little memory as can be without the host: states in
// pieces, a node as tensor ranks, a few stages. Some may be outside of the space.
std::vector<Choice> starts_of(const Request& request, const Base& base);

// Choices that differ in one thing: the micro-batch, what is computed again, the stage of ZeRO, a
// factor that one axis gives to another, the schedule, or what lies on the host. Some may be
// outside of the space.
std::vector<Choice> neighbours_of(const Choice& choice, const Request& request, const Base& base);

}  // namespace braid::plan
