// SPDX-License-Identifier: BSD-3-Clause
// A communicator over MPI, for sites where only MPI crosses the network. libbraid_mpi is opened at
// run time: braid itself runs on machines without MPI.
//
//   comm::Group world(comm::mpi());                  // under mpirun or srun --mpi=pmix
//   if (!comm::mpi_missing().empty()) use_gloo();    // "libbraid_mpi.so is not there; ..."
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "braid/comm/backend.h"

namespace braid::comm {

struct MpiOptions {
  double timeout_seconds = 300;  // a call that takes longer ends with an error: MPI knows no limit
  int64_t largest_count = 1 << 30;  // elements or bytes of one MPI call, whose counts are int
};

// All processes that the launcher started, ranked as MPI does. Starts MPI if nobody has; it ends
// with the process. Throws CommError where libbraid_mpi or its MPI cannot be used.
std::shared_ptr<Backend> mpi(MpiOptions options = {});

// Why mpi() would not work here: libbraid_mpi is not built, or does not open. Empty: it opens.
std::string mpi_missing();

}  // namespace braid::comm
