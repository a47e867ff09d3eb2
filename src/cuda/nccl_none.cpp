// SPDX-License-Identifier: BSD-3-Clause
// In place of NCCL where its header was not found at build time.
#include <stdexcept>

#include "comm/plugin.h"

extern "C" __attribute__((visibility("default"))) const char* braid_nccl_missing() {
  return "libbraid_cuda.so was built without nccl.h";
}

extern "C" __attribute__((visibility("default"))) braid::comm::Backend* braid_nccl_backend(
    const braid::comm::NcclPlace&) {
  throw std::runtime_error(braid_nccl_missing());
}
