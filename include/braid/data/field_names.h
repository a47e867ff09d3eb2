// SPDX-License-Identifier: BSD-3-Clause
// What fields are called in HDF5 and netCDF-4 files.
#pragma once
#include <string>
#include <vector>

namespace braid::data {

struct FieldNames {
  std::string dataset = "fields";           // [T, C, H, W], or [T, H, W]: one channel
  std::vector<std::string> variables = {};  // instead: one dataset per channel, or per level
  std::vector<double> levels = {};          // the levels to take of a netCDF dimension; empty: all
};

}  // namespace braid::data
