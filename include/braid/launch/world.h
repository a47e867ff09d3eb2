// SPDX-License-Identifier: BSD-3-Clause
// The group of all ranks of a job, found by what the launcher left in the environment.
//
//   const comm::Group world = launch::open_world(launch::environment());
//   parallel::Replicate replicas(named_params(*model), world);
#pragma once
#include "braid/comm/group.h"
#include "braid/launch/environment.h"

namespace braid::launch {

struct WorldOptions {
  double timeout_seconds = 300;  // to find the others, and of a collective
};

// One rank alone: a group of one, without a network. Else all ranks meet at MASTER_ADDR:MASTER_PORT
// and talk over Gloo. Throws ConfigError if the environment does not say where, CommError if the
// others do not come.
comm::Group open_world(const Environment& here, WorldOptions options = {});

}  // namespace braid::launch
