// SPDX-License-Identifier: BSD-3-Clause
// manifest.json: what a checkpoint folder must hold, byte for byte, and small values of the run.
//
//   Manifest manifest = read_manifest("runs/a/checkpoints/step-00001200");
//   manifest.files.at("model.safetensors").bytes;
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "braid/core/error.h"
#include "checkpoint/hashed_file.h"

namespace braid::checkpoint {

inline constexpr const char* manifest_name = "manifest.json";

struct Shard {
  int64_t rank = 0;
  std::string file;
};

struct Manifest {
  int64_t step = 0;
  int64_t world = 1;                        // ranks that wrote it
  std::string weights;                      // file with the whole model
  std::vector<Shard> shards;                // state of each rank
  std::map<std::string, FileRecord> files;  // every file but the manifest
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> values;
};

std::string to_json(const Manifest& manifest);             // with a hash of itself
Manifest read_manifest(const std::filesystem::path& dir);  // throws StorageError

// Throws StorageError if a file is missing or has another size. Cheap: does not read the files.
void check_sizes(const Manifest& manifest, const std::filesystem::path& dir);

StorageError broken_checkpoint(const std::filesystem::path& dir, const std::string& why);

}  // namespace braid::checkpoint
