// SPDX-License-Identifier: BSD-3-Clause
// Fields as a netCDF-4 file by the CF conventions: one variable per channel with its unit, and
// dimensions time, lat and lon with their coordinates. xarray and netCDF4-python read it.
//
//   data::write_cf("forecast.nc", {.values = states, .fields = info, .times = {6, 12},
//                                  .time_units = "hours since 2020-01-01"});
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/data/field_info.h"

namespace braid::data {

struct CfFields {
  at::Tensor values;               // [steps, channels, rows, columns]
  FieldInfo fields = {};           // one name per channel; coordinates where they are known
  std::vector<double> times = {};  // of the steps, in time_units; empty: the steps are counted
  std::string time_units = {};     // "hours since 1900-01-01"
  std::string calendar = {};       // "standard" if empty
};

// Without latitudes or longitudes that dimension is called y or x and has no coordinate; without
// times the first one is called step. Throws ConfigError for names that a file cannot hold, and
// StorageError.
void write_cf(const std::filesystem::path& file, const CfFields& forecast);

}  // namespace braid::data
