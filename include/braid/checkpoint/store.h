// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of a run: folders step-00001200/ that are whole or not there.
//
//   checkpoint::Store store("runs/demo/checkpoints", {.keep = 2, .metric = "loss"}, world);
//   store.save({.step = 1200, .state = state, .metrics = {{"loss", 0.12}}});  // training goes on
//   if (auto found = store.newest()) resume(*found);   // found->skipped names broken ones
//
// Every rank of `world` makes the same calls; each writes one file with its own share and nobody
// gathers. A folder holds shard-00002-of-00004.safetensors of each rank (of one process alone:
// model.safetensors, weights that others can read, and state-00000-of-00001.safetensors),
// config.yaml and manifest.json (where each tensor lies, sizes, hashes, values, metrics), which
// rank 0 writes last. It is written beside, synced and renamed. docs/checkpoints.md tells the
// layout.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "braid/comm/group.h"
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
  bool background = true;  // the step waits for a copy in host memory, not for the disk
  Seconds timeout{1800};   // for the slowest rank to write its share
};
void describe(Fields& fields, CheckpointOptions& options);

struct Snapshot {
  int64_t step = 0;
  State state;  // what this rank holds; values are those of rank 0
  std::map<std::string, double> metrics = {};
  std::string config = {};  // resolved YAML, kept as config.yaml
  // More files of the folder, bytes by name. Not read again: Reader::file gives them.
  std::map<std::string, std::string> files = {};
};

struct Found {
  std::filesystem::path dir;
  Snapshot snapshot;
  std::vector<std::string> skipped;  // "step-00001200: state-... is truncated (12 of 400 bytes)"
};

class Store {
 public:
  // `world` carries CPU tensors; one rank alone without it.
  explicit Store(std::filesystem::path dir, CheckpointOptions options = {}, comm::Group world = {});
  // Ends what is being written; an error of it that nobody asked for is lost.
  ~Store();
  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;

  // All ranks. Copies this rank's share and returns; a thread writes it, then removes what keep and
  // best do not hold. A checkpoint of the same step is replaced. Waits for the save before it.
  // Throws StorageError, also of the save before on any rank; what was saved before stays.
  std::filesystem::path save(const Snapshot& snapshot);
  void wait();        // until the last save is on disk; throws StorageError if it failed
  void check();       // throws StorageError if a save has failed by now; does not wait
  bool busy() const;  // a save is being written

  // All ranks: hands the newest checkpoint to `take`, which reads what its rank needs. If it is
  // broken for any rank (StorageError), all go on to the one before. Nothing there: nullopt. Throws
  // StorageError if there are some and all are broken. The snapshot has no tensors.
  using Take = std::function<void(const Reader& reader)>;
  std::optional<Found> newest(const Take& take) const;
  // The same with all tensors whole, on every rank.
  std::optional<Found> newest() const;

  std::vector<std::filesystem::path> list() const;  // oldest first, broken ones too
  std::filesystem::path best() const;               // by the metric; empty if none

 private:
  struct Writing;
  std::filesystem::path dir_;
  CheckpointOptions options_;
  comm::Group world_;
  std::unique_ptr<Writing> writing_;
};

enum class Parts { all, weights };  // weights: only the "model/..." tensors, for predict and eval

// One folder, written by any number of ranks, as whole tensors; verifies sizes and hashes; throws
// StorageError.
Snapshot load(const std::filesystem::path& checkpoint, Parts parts = Parts::all);

}  // namespace braid::checkpoint
