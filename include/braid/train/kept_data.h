// SPDX-License-Identifier: BSD-3-Clause
// What a checkpoint keeps of its training data: the statistics, and the folder in which training
// was started, so that its model is used with the same numbers from any folder.
//
//   const auto kept = train::kept_data(reader);
//   for (const std::string& line : train::use_kept(options, kept, {})) std::cout << line << "\n";
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "braid/data/statistics.h"
#include "braid/train/options.h"

namespace braid::train {

inline constexpr const char* kept_data_name = "data.json";  // in the folder of a checkpoint

struct KeptData {
  std::string folder;  // of the process that trained; relative paths of its config start there
  data::Statistics statistics;
};

std::string to_json(const KeptData& kept);
// None in checkpoints of an older braid. Throws StorageError if the file is damaged.
std::optional<KeptData> kept_data(const checkpoint::Reader& reader);

// Keys of paths that a checkpoint keeps the beginning or the content of: data.train, data.means,
// ...
std::set<std::string> kept_keys();

// Where two sets of statistics differ, one line per key: "data.means (m.npy): 2 of 3 channels
// differ from the checkpoint, most in channel 1: 5.25 instead of 5". `mine` are those of options.
std::vector<std::string> differences(const data::DataOptions& options, const data::Statistics& mine,
                                     const data::Statistics& kept);

// For eval and predict: relative paths of the data start in the folder of the training run, and the
// statistics are those of the checkpoint. Settings of `given` (keys, e.g. data.means) stay as they
// are. Returns what the user should know: files that differ, statistics that were replaced.
std::vector<std::string> use_kept(RunOptions& options, const std::optional<KeptData>& kept,
                                  const std::set<std::string>& given);

}  // namespace braid::train
