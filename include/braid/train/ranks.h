// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run as the trainer sees them; as it is, one rank alone.
//
//   train::Ranks ranks{.mesh = {options.mesh, here.world, here.rank, zero}, .world = world.ranks};
//   train::Trainer trainer(*model, data, options, sink, log, ranks);
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "braid/comm/group.h"
#include "braid/parallel/mesh.h"

namespace braid::train {

struct Ranks {
  parallel::Mesh mesh = {};
  comm::Group world = {};    // for tensors on the training device
  comm::Group control = {};  // for small messages of the host
  int gpu = 0;               // index of this rank's GPU, if it trains on one
  double latency = 0;        // of a small all-reduce, seconds
  // Told what the run does, for the report of a hang: each step and each pause between two ("step
  // 17"), and the parts of a step ("forward").
  std::function<void(const std::string&)> progress = {};
  std::function<void(const char*)> phase = {};

  bool alone() const { return mesh.world() == 1; }
  bool first() const { return mesh.rank() == 0; }
  // Ranks that share the batch, and those that have the same weights or pieces of them.
  comm::Group batch() const;
  comm::Group shard() const;
  comm::Group replicas() const;
};

}  // namespace braid::train
