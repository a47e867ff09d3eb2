// SPDX-License-Identifier: BSD-3-Clause
// What published runs computed where braid has one kernel of its own.
//
//   for (const memory::Operator& part : as_published(row, op)) seconds += model.cost(part).seconds;
#pragma once
#include <vector>

#include "braid/plan/published.h"

namespace braid::plan {

// The operator itself where the run had the same one.
std::vector<memory::Operator> as_published(const PublishedTime& row, const memory::Operator& op);

}  // namespace braid::plan
