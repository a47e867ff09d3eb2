// SPDX-License-Identifier: BSD-3-Clause
// What `mesh.order` says, as axes.
#pragma once
#include "braid/parallel/mesh.h"

namespace braid::parallel {

int64_t size_of(const MeshOptions& sizes, Axis axis);  // an unset size is 1
// All six axes, the fastest varying first. Throws ConfigError if the order names something else or
// something twice, or leaves out an axis of several ranks.
Axes axes_in_order(const MeshOptions& sizes);

}  // namespace braid::parallel
