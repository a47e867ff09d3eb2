// SPDX-License-Identifier: BSD-3-Clause
// Dry runs of steps with many micro-batches, cut short.
#pragma once
#include "braid/train/fit.h"

namespace braid::train {

// A step of many micro-batches, one after the other, peaks like one of three: only the batch itself
// is larger. Cuts it down and says by how many bytes.
int64_t shorten(RunOptions& options, const MeasureOptions& how);

}  // namespace braid::train
