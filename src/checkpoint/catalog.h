// SPDX-License-Identifier: BSD-3-Clause
// What can be read, and where it lies: the files of a checkpoint, or of weights from elsewhere.
//
//   std::unique_ptr<Catalog> catalog = open_any("gpt2/");
//   for (const Located& piece : catalog->tensors.at("model/wte.weight").pieces) ...
#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "checkpoint/manifest.h"

namespace braid::checkpoint {

struct Located {
  size_t shard = 0, piece = 0;  // of manifest.shards
};

struct Catalog {
  std::filesystem::path dir;
  bool checkpoint = true;
  Manifest manifest;
  std::map<std::string, Stored> tensors;
  std::map<std::string, std::vector<Located>> pieces;  // of each tensor, by first element
  std::set<size_t> checked;  // shards whose head, or whose whole in version 1, matched its hash

  const StoredPiece& at(const Located& where) const {
    return manifest.shards[where.shard].pieces[where.piece];
  }
};

std::unique_ptr<Catalog> open_checkpoint(const std::filesystem::path& dir);
std::unique_ptr<Catalog> open_any(const std::filesystem::path& path);

// The folder of the newest checkpoint in a folder of checkpoints whose manifest and sizes are
// right; empty if none.
std::filesystem::path newest_by_size(const std::filesystem::path& checkpoints);

}  // namespace braid::checkpoint
