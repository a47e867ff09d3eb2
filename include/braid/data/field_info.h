// SPDX-License-Identifier: BSD-3-Clause
// What the channels of fields are called and where their points lie, as the files say it.
//
//   data::FieldInfo info = source->fields();
//   if (!info.latitudes.empty()) rows = info.latitudes;   // degrees, one per row
#pragma once
#include <string>
#include <vector>

namespace braid::data {

struct FieldInfo {
  std::vector<std::string> names = {};  // one per channel; empty: the files name no channel
  std::vector<std::string> units = {};  // one per channel, "" where unknown; or empty
  std::vector<double> latitudes = {};   // degrees north, one per row of a sample; empty: unknown
  std::vector<double> longitudes = {};  // degrees east, one per column; empty: unknown
};

}  // namespace braid::data
