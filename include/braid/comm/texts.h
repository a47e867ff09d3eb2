// SPDX-License-Identifier: BSD-3-Clause
// Small texts between ranks. All ranks of the group call at the same time.
//
//   std::vector<std::string> reasons = comm::exchange_texts(world, mine);   // in the order of the
//   ranks
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"

namespace braid::comm {

std::vector<std::string> exchange_texts(const Group& world, const std::string& mine);

}  // namespace braid::comm
