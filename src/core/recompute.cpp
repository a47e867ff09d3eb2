// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/recompute.h"

namespace braid {
namespace {

// A recompute runs from begin to end within one call on one thread.
thread_local int recompute_depth = 0;

}  // namespace

bool recomputing() { return recompute_depth > 0; }

RecomputingGuard::RecomputingGuard() { ++recompute_depth; }
RecomputingGuard::~RecomputingGuard() { --recompute_depth; }

}  // namespace braid
