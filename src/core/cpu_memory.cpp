// SPDX-License-Identifier: BSD-3-Clause
#include <malloc.h>

#include <limits>

#include "braid/core/cpu.h"

namespace braid {

bool keep_freed_memory() {
  constexpr int never_trim = -1;
  return mallopt(M_MMAP_THRESHOLD, std::numeric_limits<int>::max()) == 1 &&
         mallopt(M_TRIM_THRESHOLD, never_trim) == 1;
}

}  // namespace braid
