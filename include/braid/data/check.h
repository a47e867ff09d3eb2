// SPDX-License-Identifier: BSD-3-Clause
// What is wrong with given fields: `braid data check`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "braid/data/field_names.h"
#include "braid/data/progress.h"

namespace braid::data {

struct Finding {
  std::string file;
  std::string
      problem;  // truncated, NaN at frame 3 channel 2, shape differs, year 1994 is missing, ...
  bool fatal = true;
};
struct CheckReport {
  std::vector<Finding> findings;
  int64_t files = 0, frames = 0, bytes = 0;
  std::vector<int64_t> shape;
};
// Of all files below a folder. Throws DataError if there are none.
CheckReport check_data(const std::filesystem::path& dir, const FieldNames& names = {},
                       const Progress& progress = {});

}  // namespace braid::data
