// SPDX-License-Identifier: BSD-3-Clause
// manifest.json: what a checkpoint folder must hold, byte for byte, where each piece of each tensor
// lies, and small values of the run.
//
//   Manifest manifest = read_manifest("runs/a/checkpoints/step-00001200");
//   manifest.shards.at(0).pieces.at(0).name;   // "model/layer.weight"
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/core/error.h"
#include "braid/core/param.h"
#include "checkpoint/hashed_file.h"

namespace braid::checkpoint {

inline constexpr const char* manifest_name = "manifest.json";
inline constexpr const char* config_name = "config.yaml";
inline constexpr std::string_view model_prefix = "model/";

// A run of a tensor's elements (row-major), or of a box cut out of it, in a file.
struct StoredPiece {
  std::string name;  // in the state: "model/layer.weight"
  c10::ScalarType dtype = c10::kFloat;
  std::vector<int64_t> whole;    // shape of the tensor it is a piece of
  int64_t first = 0, count = 0;  // elements of the box
  int64_t begin = 0;             // byte of the file
  std::vector<uint64_t> xxh3;    // of each hashed_run bytes; empty: the file has a hash as a whole
  std::vector<Cut> cuts = {};    // the box; none: the whole
  bool operator==(const StoredPiece&) const = default;
};

struct Shard {
  std::string file;
  FileRecord record;  // size, and the hash of its head
  std::vector<StoredPiece> pieces;
};

struct Manifest {
  int64_t version = 2;  // as read; 3 is written where a piece has cuts, which 2 does not know
  int64_t step = 0;
  int64_t world = 1;  // ranks that wrote it
  std::string token;  // of this save, so that ranks know it from an older one of the same step
  std::vector<Shard> shards;                // files of tensors
  std::map<std::string, FileRecord> files;  // all others but the manifest; version 1: shards too
  std::map<std::string, double> metrics;
  std::map<std::string, std::string> values;
};

std::string to_json(const Manifest& manifest);             // with a hash of itself
Manifest read_manifest(const std::filesystem::path& dir);  // throws StorageError

// What a rank leaves beside its shard for rank 0, which makes the manifest of all of them.
std::string to_json(const Shard& shard);
Shard read_shard_record(const std::filesystem::path& file);  // throws StorageError

// Throws StorageError if a file is missing or has another size. Cheap: does not read the files.
void check_sizes(const Manifest& manifest, const std::filesystem::path& dir);

StorageError broken_checkpoint(const std::filesystem::path& dir, const std::string& why);

}  // namespace braid::checkpoint
