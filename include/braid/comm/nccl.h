// SPDX-License-Identifier: BSD-3-Clause
// A communicator over NCCL, for CUDA tensors; a part of libbraid_cuda. A rank has a GPU of its own.
//
//   comm::Group world(comm::nccl(store, here.rank, here.world, {.device = here.local_rank}));
//   world.all_reduce(grad).wait();  // the current stream waits, the host goes on
//
// Calls run on a stream of the group's own, after what the current stream holds at the call. A call
// that takes longer than the timeout ends the group: the next call throws.
#pragma once
#include <memory>
#include <string>

#include "braid/comm/backend.h"
#include "braid/comm/store.h"

namespace braid::comm {

struct NcclOptions {
  int device = 0;                // index of this rank's GPU
  double timeout_seconds = 300;  // of meeting the others, and of a call on the GPU
};

// Throws CommError where there is no GPU or NCCL, or where the other ranks do not come.
std::shared_ptr<Backend> nccl(const Store& store, int rank, int size, NcclOptions options = {});

// Why nccl() would not work here: no GPU, or libbraid_cuda was built without NCCL. Empty: it would.
std::string nccl_missing();

}  // namespace braid::comm
