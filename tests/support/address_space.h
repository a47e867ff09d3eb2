// SPDX-License-Identifier: BSD-3-Clause
// How much address space this process has taken. Under the address sanitizer it is terabytes, and
// limits of it (ulimit -v) mean nothing.
#pragma once
#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace braid::test {

inline int64_t address_space() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * ::sysconf(_SC_PAGESIZE);
}
inline bool under_address_sanitizer() { return address_space() > int64_t{1} << 40; }

}  // namespace braid::test
