// SPDX-License-Identifier: BSD-3-Clause
// One checkpoint being written: every rank its shard, rank 0 the manifest of all, then the rename.
// Ranks meet in the folder alone, so that this can run beside the collectives of training.
//
//   write_checkpoint(job, leaving);   // on every rank, in a thread of its own; throws StorageError
#pragma once
#include <atomic>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "braid/checkpoint/store.h"
#include "checkpoint/shard.h"

namespace braid::checkpoint {

struct Job {
  std::filesystem::path temporary, target;
  std::vector<ShardPlan> plans;
  Manifest manifest;  // step, world, token; of rank 0 also metrics and values
  std::map<std::string, std::string> files;  // of rank 0: those without tensors, bytes by name
  int rank = 0;
  CheckpointOptions options;
};

// `leaving`: the program ends; others are waited for a short time only.
void write_checkpoint(Job& job, const std::atomic<bool>& leaving);

// The checkpoints of a run by their metric, best first.
std::vector<std::filesystem::path> best_first(const std::filesystem::path& dir,
                                              const CheckpointOptions& options);

}  // namespace braid::checkpoint
