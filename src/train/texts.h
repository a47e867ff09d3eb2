// SPDX-License-Identifier: BSD-3-Clause
// Short texts from rank to rank, by the group of host messages.
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/record.h"

namespace braid::train {

std::string broadcast_text(const comm::Group& ranks, const std::string& text, int root);
std::vector<std::string> gather_texts(const comm::Group& ranks, const std::string& text);

// The record of `root`, on all ranks; seconds are their own.
ValidRecord broadcast_record(const comm::Group& ranks, const ValidRecord& record, int root);

}  // namespace braid::train
