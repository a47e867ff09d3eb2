// SPDX-License-Identifier: BSD-3-Clause
// Whole arrays from and to files, by the ending of the name: .npy, or a dataset of an HDF5 file.
//
//   at::Tensor now = data::read_array("2018.h5", {.dataset = "fields", .frame = 12});  // [C, H, W]
//   data::write_array("forecast.h5", now);
//   data::FieldFrame frame = data::read_frame("2018.nc", {.variables = {"u10", "t2m"}}, 12);
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "braid/data/field_info.h"
#include "braid/data/field_names.h"

namespace braid::data {

struct ArrayOptions {
  std::string dataset = "fields";     // of an HDF5 file
  std::optional<int64_t> frame = {};  // only this index of the first dimension
};

// float32, NaN where the file says that a value is missing. Throws DataError.
at::Tensor read_array(const std::filesystem::path& file, ArrayOptions options = {});
// Whether write_array knows the ending: .npy, .h5 or .hdf5.
bool is_array_name(const std::filesystem::path& file);
// Throws StorageError, and ConfigError for another ending. netCDF files: data::write_cf.
void write_array(const std::filesystem::path& file, const at::Tensor& tensor,
                 const std::string& dataset = "fields");

// One frame of the fields that a model trains on: channels, rows and columns as the loader has
// them.
struct FieldFrame {
  at::Tensor values;    // [C, H, W], float32, in the units of the file; NaN where missing
  int64_t missing = 0;  // how many values are
  FieldInfo info = {};  // of this whole grid
  int64_t frames = 0;   // in the file
  std::optional<double> time = {};             // of this frame, in `time_units`
  std::string time_units = {}, calendar = {};  // "hours since 1900-01-01"; "" if the file has none
};
// A .h5, .hdf5, .nc or .nc4 file. Throws DataError: no such variable, frame, ...
FieldFrame read_frame(const std::filesystem::path& file, const FieldNames& names, int64_t frame);
bool is_field_file(const std::filesystem::path& file);  // by its ending

}  // namespace braid::data
