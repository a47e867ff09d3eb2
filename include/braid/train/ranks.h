// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run as the trainer sees them; as it is, one rank alone.
//
//   train::Ranks ranks{.mesh = {options.mesh, here.world, here.rank, zero}, .world = world.ranks};
//   train::Trainer trainer(*model, data, options, sink, log, ranks);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "braid/comm/group.h"
#include "braid/kernels/deferred.h"
#include "braid/memory/ledger.h"
#include "braid/parallel/mesh.h"
#include "braid/parallel/sync.h"

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
  // Gradients of weights that a pipeline wants later: the model's layers fill it, the step runs it.
  std::shared_ptr<kernels::Deferred> later = std::make_shared<kernels::Deferred>();

  // Counts the memory of this rank and refuses what goes beyond memory.limit; null: nobody does.
  std::shared_ptr<memory::Ledger> ledger = nullptr;

  bool alone() const { return mesh.world() == 1; }
  bool first() const { return mesh.rank() == 0; }
  // Groups of this rank. All ranks ask for the same ones in the same order.
  comm::Group batch() const;     // share the batch: data, shard, expert
  comm::Group shard() const;     // hold the states of the same weights in pieces
  comm::Group owners() const;    // hold the model together, once: shard, tensor, expert, pipeline
  comm::Group pipeline() const;  // hold the stages of one replica
  comm::Group losses() const;    // know the losses of the batch together: batch, pipeline
  comm::Group tokens() const;    // have the tokens of the batch together: batch, context
  // Over which ranks gradients are summed, beside those that shard them; all groups of it are made
  // now, so that ranks with other parameters have the same ones.
  parallel::ReplicasOf replicas_of() const;
  bool sums() const;       // some gradient is a sum over ranks
  int64_t copies() const;  // ranks that see the same samples
};

// Ranks of a job that is not there, as one of them sees it: for counts and checks.
Ranks dry_ranks(const parallel::Mesh& mesh);

}  // namespace braid::train
