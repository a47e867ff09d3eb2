// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/mpi.h"

#include <fmt/format.h>

#include <exception>

#include "braid/core/error.h"
#include "comm/plugin.h"
#include "comm/staged.h"

namespace braid::comm {
namespace {

const PluginSymbol& mpi_library() {
  static const PluginSymbol library = plugin_symbol("libbraid_mpi.so", open_mpi_symbol);
  return library;
}

}  // namespace

std::string mpi_missing() { return mpi_library().reason; }

std::shared_ptr<Backend> mpi(MpiOptions options) {
  const PluginSymbol& library = mpi_library();
  if (library.address == nullptr)
    throw CommError(
        {.what = fmt::format("MPI cannot be used: {}", library.reason),
         .why = "the MPI backend is a library of its own, built where MPI is found",
         .fix = "install Open MPI with its headers and build braid again, or use Gloo"});
  try {
    const auto open = reinterpret_cast<OpenMpi>(library.address);
    return staged(std::shared_ptr<Backend>(open(options)));
  } catch (const std::exception& error) {
    throw CommError(
        {.what = fmt::format("MPI does not start: {}", error.what()),
         .why = "ranks of MPI are started by its own launcher, and call it from "
                "several threads",
         .fix = "start with mpirun or srun --mpi=pmix of the MPI braid was built with"});
  }
}

}  // namespace braid::comm
