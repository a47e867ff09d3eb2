// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "braid/core/accelerator.h"

namespace braid::memory {

int64_t current_rss() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long total = 0, resident = 0;
  const int fields = std::fscanf(file, "%ld %ld", &total, &resident);
  std::fclose(file);
  return fields == 2 ? int64_t{resident} * ::sysconf(_SC_PAGESIZE) : 0;
}

int64_t peak_rss() {
  struct rusage usage;
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return int64_t{usage.ru_maxrss} * 1024;  // Linux counts it in KiB
}

int64_t peak_bytes(c10::Device device) {
  Accelerator* gpu = device.is_cuda() ? accelerator() : nullptr;
  return gpu == nullptr ? peak_rss() : gpu->peak_allocated(device.has_index() ? device.index() : 0);
}

void reset_peak(c10::Device device) {
  Accelerator* gpu = device.is_cuda() ? accelerator() : nullptr;
  if (gpu != nullptr) gpu->reset_peak(device.has_index() ? device.index() : 0);
}

}  // namespace braid::memory
