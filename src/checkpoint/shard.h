// SPDX-License-Identifier: BSD-3-Clause
// Writes files of pieces of tensors.
//
//   ShardPlan plan{.file = "shard-00000-of-00002.safetensors", .parts = {...}};
//   Shard shard = write_shard(dir, plan);   // goes into the manifest
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/split.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {

struct Part {
  StoredPiece piece;                 // begin and hashes are not known yet
  std::string stored_name;           // in the file
  std::function<at::Tensor()> host;  // its elements: on the CPU, contiguous
};

struct ShardPlan {
  std::string file;
  std::vector<Part> parts;
  Metadata metadata = {};
};

std::string shard_name(int64_t rank, int64_t world);
std::string record_name(int64_t rank, int64_t world);  // of what the rank leaves for rank 0
std::string failure_name(int64_t rank, int64_t world);

// Named runs of a state, dealt to the files of a rank. One rank alone has two files: the weights,
// which others can read, and the rest.
std::vector<ShardPlan> plan_shards(const std::vector<Holding>& holdings,
                                   const std::vector<WrittenRun>& runs, int64_t rank,
                                   int64_t world);

Shard write_shard(const std::filesystem::path& dir, const ShardPlan& plan);

}  // namespace braid::checkpoint
