// SPDX-License-Identifier: BSD-3-Clause
// What one rank knows of an evaluation, on all ranks.
#pragma once
#include "braid/comm/group.h"
#include "braid/core/record.h"

namespace braid::train {

// The record of `root`; seconds are their own.
ValidRecord broadcast_record(const comm::Group& ranks, const ValidRecord& record, int root);

}  // namespace braid::train
