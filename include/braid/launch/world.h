// SPDX-License-Identifier: BSD-3-Clause
// The group of all ranks of a job, found by what the launcher left in the environment.
//
//   const launch::World world = launch::open_world(launch::environment());
//   parallel::Replicate replicas(net, world.ranks);
//
// On GPUs, one per rank, tensors travel over NCCL:
//
//   const launch::World gpus = launch::open_world(launch::environment(), {.device = "cuda"});
//   net->to(gpus.device());
#pragma once
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "braid/comm/store.h"
#include "braid/launch/environment.h"
#include "braid/launch/options.h"

namespace braid::launch {

struct World {
  comm::Group ranks;                             // for tensors on device()
  comm::Group control;                           // for small CPU tensors; the same group on a CPU
  comm::Store store = comm::Store::in_memory();  // of this job alone: below its token
  std::string token = "open";
  bool serves_store = false;   // this process does: others need it until they leave
  double latency_seconds = 0;  // of a 4-byte all-reduce, the median of a few
  int threads = 1;             // CPU threads that are this rank's share of its host
  int gpu = -1;                // number of this rank's GPU; -1: it computes on the CPU
  std::string address = {};    // at which the other ranks reach this one; empty when alone
  std::vector<std::string> places = {};  // host:pid of every rank; empty when alone

  c10::Device device() const {
    return gpu < 0 ? c10::Device(c10::kCPU)
                   : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  }
};

// One rank alone: a group of one, without a network. Else all ranks meet at the store of rank 0 (or
// of the launcher), show that they are of one job, take their share of the host's threads, and talk
// over what Options::backend says: auto is NCCL for {.device = "cuda"}, else Gloo. Throws
// ConfigError if the environment does not say where, this was started without srun, or the backend
// cannot carry tensors of the device; CommError that names the host
// which cannot be reached, the ranks that did not come, or the job that has the port.
World open_world(const Environment& here, const Options& options = {});

// Before a rank ends: the one that serves the store stays until all have come here (or 10 s).
// Called while an exception passes, it waits for nobody.
void leave(const World& world);

// The number of this rank's GPU among those it sees. Throws ConfigError if there is none for it.
int gpu_of(const Environment& here, const Options& options);
// Throws ConfigError if Options::backend is not there or cannot carry tensors of the device.
void check_backend(const Options& options, c10::Device device);
// What carries tensors of the device between the ranks: world.control (Gloo), NCCL or MPI.
comm::Group carrier(const World& world, const Environment& here, const Options& options,
                    c10::Device device);

// A GPU as all hosts know it: the UUID if the driver tells, else the number on this host that
// CUDA_VISIBLE_DEVICES gives to `index`.
std::string gpu_name(const Environment& here, int index, const std::string& uuid = "");
// All ranks call it, with "" for a CPU. Throws ConfigError naming two ranks that have one GPU.
void refuse_shared_gpu(const World& world, const std::string& gpu, const Options& options);

}  // namespace braid::launch
