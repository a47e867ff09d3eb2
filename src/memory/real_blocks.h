// SPDX-License-Identifier: BSD-3-Clause
// Real memory under the eyes of the ledger: an allocator in front of torch's CPU allocator and a
// listener at the caching allocator of CUDA.
#pragma once
#include <c10/core/Storage.h>

#include "memory/block.h"

namespace braid::memory {

// From the first call on, CPU allocations made under a ledger are counted. What is not made under
// one goes through untouched.
void watch_real_memory();
BlockPtr real_block(const c10::Storage& storage);
// Counts memory that was taken before anybody counted; null if its end could not be seen.
BlockPtr adopt_block(const c10::Storage& storage, Ledger::State& ledger);

}  // namespace braid::memory
