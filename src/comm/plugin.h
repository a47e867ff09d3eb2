// SPDX-License-Identifier: BSD-3-Clause
// What libbraid and the libraries it opens at run time agree on. Such a library uses only what is
// inline in braid's headers: a program does not lend its symbols. It throws std::runtime_error;
// groups and factories turn that into sentences.
#pragma once
#include <functional>
#include <string>

#include "braid/comm/backend.h"
#include "braid/comm/mpi.h"

namespace braid::comm {

// extern "C" in libbraid_mpi. The caller owns what it gets.
using OpenMpi = Backend* (*)(const MpiOptions& options);
inline constexpr const char* open_mpi_symbol = "braid_mpi_backend";

struct NcclPlace {
  int rank = 0, size = 1, device = 0;
  double timeout_seconds = 300;
  std::function<void(const std::string& key, const std::string& value)> set;  // on the store
  std::function<std::string(const std::string& key)> get;
};
// extern "C" in libbraid_cuda.
using OpenNccl = Backend* (*)(const NcclPlace& place);
inline constexpr const char* open_nccl_symbol = "braid_nccl_backend";
using NcclMissing = const char* (*)();
inline constexpr const char* nccl_missing_symbol = "braid_nccl_missing";

// A symbol of a library that stands beside this one or in ../lib of the program.
struct PluginSymbol {
  void* address = nullptr;
  std::string reason;  // why it is null
};
PluginSymbol plugin_symbol(const std::string& library, const char* symbol);
// A symbol of a library that is open already.
void* open_symbol(const char* symbol);

}  // namespace braid::comm
