// SPDX-License-Identifier: BSD-3-Clause
// What is wrong with given fields: `braid data check`.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "braid/data/field_names.h"
#include "braid/data/options.h"
#include "braid/data/progress.h"

namespace braid::data {

struct Finding {
  std::string file;
  std::string problem;  // truncated, 12 missing values of t2m, shape differs, 1994 is missing, ...
  bool fatal = true;
};
struct CheckReport {
  std::vector<Finding> findings;
  int64_t files = 0, frames = 0, bytes = 0;
  std::vector<int64_t> shape;
};
struct CheckOptions {
  FieldNames names = {};
  Missing missing = Missing::error;  // fill: missing values are a note, not a problem
};
// Of a file, or of all files below a folder. Progress counts frames. Throws DataError if there are
// no files.
CheckReport check_data(const std::filesystem::path& where, const CheckOptions& options = {},
                       const Progress& progress = {});

}  // namespace braid::data
