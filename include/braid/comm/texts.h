// SPDX-License-Identifier: BSD-3-Clause
// Small texts between ranks. All ranks of the group call at the same time.
//
//   std::vector<std::string> reasons = comm::exchange_texts(world, mine);  // by rank
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"

namespace braid::comm {

// `device`: where the group can send from.
std::vector<std::string> exchange_texts(const Group& world, const std::string& mine,
                                        c10::Device device = c10::kCPU);

}  // namespace braid::comm
