// SPDX-License-Identifier: BSD-3-Clause
// Small texts between ranks. All ranks of the group call at the same time.
//
//   std::vector<std::string> reasons = exchange_texts(world, mine);   // in the order of the ranks
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"

namespace braid::checkpoint {

std::vector<std::string> exchange_texts(const comm::Group& world, const std::string& mine);

}  // namespace braid::checkpoint
