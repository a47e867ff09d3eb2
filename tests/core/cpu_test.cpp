// SPDX-License-Identifier: BSD-3-Clause
// The allocator of a process that computes: pages that were given back once are not asked for
// again.
#include "braid/core/cpu.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <cstring>

namespace braid {
namespace {

int64_t page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// Of a block that is taken, written and freed.
int64_t page_faults_of(size_t bytes) {
  const int64_t before = page_faults();
  void* block = std::malloc(bytes);
  std::memset(block, 1, bytes);
  asm volatile("" : : "r"(block) : "memory");  // else the compiler sees that nobody reads it
  std::free(block);
  return page_faults() - before;
}

TEST(Cpu, FreedMemoryIsKept) {
  constexpr size_t bytes = 96 << 20;  // beyond the 32 MiB up to which malloc learns by itself
  const int64_t pages = page_faults_of(bytes);
  EXPECT_GT(page_faults_of(bytes), pages / 2);  // it is the system's again each time
  if (!keep_freed_memory()) GTEST_SKIP() << "another allocator stands in the system's place";
  page_faults_of(bytes);
  EXPECT_LT(page_faults_of(bytes), 100);
}

}  // namespace
}  // namespace braid
