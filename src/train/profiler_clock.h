// SPDX-License-Identifier: BSD-3-Clause
// How far the clocks of the ranks are apart.
#pragma once
#include <cstdint>

#include "braid/comm/group.h"

namespace braid::train {

// Nanoseconds to add to the time of day here for that of rank 0; all ranks call it together. 0
// where the difference is less than the messages can tell: the ranks of a host have the same clock.
int64_t clock_offset(const comm::Group& control);

}  // namespace braid::train
