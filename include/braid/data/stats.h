// SPDX-License-Identifier: BSD-3-Clause
// Mean, standard deviation and range of every channel: what data.means and data.stds are made of
// (`braid data stats`).
//
//   const data::FieldStats stats = data::field_stats("era5/train", {.variables = {"u10", "t2m"}});
//   data::write_stats("era5/stats", stats.channels);
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "braid/data/field_names.h"
#include "braid/data/progress.h"

namespace braid::data {

struct ChannelStats {
  std::string name = {};  // of the variable, or the channel's number
  double mean = 0, std = 1;
  float least = 0, most = 0;
  int64_t missing = 0;  // NaN and infinities, which count for none of the others
};
struct FieldStats {
  std::vector<ChannelStats> channels;
  int64_t files = 0, frames = 0, height = 0, width = 0;
};

// Over all points of all frames. `where` is a folder of files, a file or a pattern, as data.train
// is. Throws DataError, also if a channel has no value at all.
FieldStats field_stats(const std::string& where, const FieldNames& names = {},
                       const Progress& progress = {});

// global_means.npy and global_stds.npy of [1, C, 1, 1] f4. For a channel that is the same
// everywhere 1 is written, since fields are divided by it. Throws StorageError.
void write_stats(const std::filesystem::path& dir, const std::vector<ChannelStats>& channels);

}  // namespace braid::data
