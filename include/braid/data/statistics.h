// SPDX-License-Identifier: BSD-3-Clause
// Numbers computed from the training data that a model cannot be used without. A config names their
// files; a checkpoint keeps the numbers.
//
//   const data::Statistics used = data::read_statistics(options);   // used.at("data.means")[0]
//   options.statistics = used;                                      // from now on, not the files
#pragma once
#include <map>
#include <string>
#include <vector>

namespace braid::data {

struct DataOptions;

using Statistics = std::map<std::string, std::vector<float>>;  // by key of the config

// A setting that names a .npy file of statistics. A new one needs a row in statistic_files() alone
// to be kept in checkpoints.
struct StatisticFile {
  const char* key;  // data.means
  std::string DataOptions::* file;
};
const std::vector<StatisticFile>& statistic_files();

// What a source would use: options.statistics where it has the key, else the file that options
// name, all of its numbers. Throws DataError.
Statistics read_statistics(const DataOptions& options);
std::vector<float> read_statistic(const DataOptions& options, const StatisticFile& which);

}  // namespace braid::data
