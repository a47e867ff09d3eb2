// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of a run: folders step-00001200/ that are whole or not there.
//
//   checkpoint::Store store("runs/demo/checkpoints", {.keep = 2, .best = 1, .metric = "loss"});
//   store.save({.step = 1200, .state = state, .metrics = {{"loss", 0.12}}});
//   if (auto found = store.newest()) resume(*found);   // found->skipped names broken ones
//
// A folder holds model.safetensors (weights alone, readable elsewhere),
// state-00000-of-00001.safetensors (all the rest of this rank's shard), config.yaml and
// manifest.json (sizes and hashes of every file, values, metrics). It is written beside, synced and
// renamed; one process at a time writes into a store. docs/checkpoints.md tells the layout.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/options.h"
#include "braid/core/state.h"

namespace braid::checkpoint {

struct CheckpointOptions {
  int64_t every = 0;            // steps between checkpoints; 0: at the end of each epoch
  int64_t keep = 2;             // newest ones kept
  int64_t best = 1;             // best ones kept beside them
  std::string metric = "loss";  // of validation
  bool highest = false;         // the metric is better when higher
  bool at_end = true;
};
void describe(Fields& fields, CheckpointOptions& options);

struct Snapshot {
  int64_t step = 0;
  State state;  // "model/..." tensors go to model.safetensors
  std::map<std::string, double> metrics = {};
  std::string config = {};  // resolved YAML, kept as config.yaml
};

struct Found {
  std::filesystem::path dir;
  Snapshot snapshot;
  std::vector<std::string> skipped;  // "step-00001200: state-... is truncated (12 of 400 bytes)"
};

class Store {
 public:
  explicit Store(std::filesystem::path dir, CheckpointOptions options = {});
  // Writes a checkpoint (one of the same step is replaced), then removes what keep and best do not
  // hold. Throws StorageError; what was saved before stays.
  std::filesystem::path save(const Snapshot& snapshot);
  // The newest whole one; throws StorageError if there are some and all are broken.
  std::optional<Found> newest() const;
  std::vector<std::filesystem::path> list() const;  // oldest first, broken ones too
  std::filesystem::path best() const;               // by the metric; empty if none

 private:
  void prune(const std::filesystem::path& just_saved) const;
  std::filesystem::path dir_;
  CheckpointOptions options_;
};

enum class Parts { all, weights };  // weights: only the "model/..." tensors, for predict and eval

// One folder; verifies sizes and hashes; throws StorageError.
Snapshot load(const std::filesystem::path& checkpoint, Parts parts = Parts::all);

}  // namespace braid::checkpoint
