// SPDX-License-Identifier: BSD-3-Clause
// The group of all ranks of a job, found by what the launcher left in the environment.
//
//   const launch::World world = launch::open_world(launch::environment());
//   parallel::Replicate replicas(named_params(*model), world.ranks);
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/comm/store.h"
#include "braid/launch/environment.h"
#include "braid/launch/options.h"

namespace braid::launch {

struct World {
  comm::Group ranks;                             // for tensors where the model lives
  comm::Group control;                           // for small CPU tensors; the same group on a CPU
  comm::Store store = comm::Store::in_memory();  // of this job alone: below its token
  std::string token = "open";
  bool serves_store = false;   // this process does: others need it until they leave
  double latency_seconds = 0;  // of a 4-byte all-reduce, the median of a few
  int threads = 1;             // CPU threads that are this rank's share of its host
  std::string address = {};    // at which the other ranks reach this one; empty when alone
  std::vector<std::string> places = {};  // host:pid of every rank; empty when alone
};

// One rank alone: a group of one, without a network. Else all ranks meet at the store of rank 0 (or
// of the launcher), show that they are of one job, and talk over Gloo. Throws ConfigError if the
// environment does not say where or this was started without srun; CommError that names the host
// which cannot be reached, the ranks that did not come, or the job that has the port.
World open_world(const Environment& here, const Options& options = {});

// Before a rank ends: the one that serves the store stays until all have come here (or 10 s).
// Called while an exception passes, it waits for nobody.
void leave(const World& world);

// A GPU as all hosts know it: the UUID if the driver tells, else the number on this host that
// CUDA_VISIBLE_DEVICES gives to `index`.
std::string gpu_name(const Environment& here, int index, const std::string& uuid = "");
// All ranks call it, with "" for a CPU. Throws ConfigError naming two ranks that have one GPU.
void refuse_shared_gpu(const World& world, const std::string& gpu, const Options& options);

}  // namespace braid::launch
