// SPDX-License-Identifier: BSD-3-Clause
// How ranks find each other and how long they wait: the section `launch:` of a config.
//
//   launch::Options options{.timeout = {600}, .interface = "ib0"};
//
// In a config: `launch: {timeout: 10m, interface: ib0}`.
#pragma once
#include <cstdint>
#include <string>

#include "braid/comm/watch.h"
#include "braid/core/options.h"

namespace braid::launch {

struct Options {
  Seconds timeout = {300};  // how long a rank waits for another; all other limits follow from it
  int64_t port = 0;         // of the store; 0: any free one (--ranks), else as the launcher says
  std::string backend = "auto";  // of collectives: gloo, nccl, mpi; auto: nccl on GPUs, else gloo
  bool share_gpu = false;        // allow two ranks on one GPU
  std::string interface = {};    // of this host towards the other ranks, e.g. ib0
  std::string address = {};      // the same, as an address
  std::string meet_dir = ".";    // not a key: a folder that all hosts see, for mpirun
  // Not keys: of open_world() in a program of one's own.
  std::string device = "cpu";  // where tensors of World::ranks lie; cuda: each rank has a GPU
  bool set_threads = true;     // at::set_num_threads(World::threads), if there are several ranks
};

void describe(Fields& fields, Options& options);

// Each limit is longer than what happens inside it, so that the innermost names the cause: an
// answer of the store < a collective < a step < the start of a job.
comm::Timeouts timeouts(const Options& options);

}  // namespace braid::launch
