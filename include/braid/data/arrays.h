// SPDX-License-Identifier: BSD-3-Clause
// Whole arrays from and to files, by the ending of the name: .npy, or a dataset of an HDF5 file.
//
//   at::Tensor now = data::read_array("2018.h5", {.dataset = "fields", .frame = 12});  // [C, H, W]
//   data::write_array("forecast.h5", forecast);
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

namespace braid::data {

struct ArrayOptions {
  std::string dataset = "fields";     // of an HDF5 file
  std::optional<int64_t> frame = {};  // only this index of the first dimension
};

at::Tensor read_array(const std::filesystem::path& file,
                      ArrayOptions options = {});  // float32; throws DataError
void write_array(const std::filesystem::path& file,
                 const at::Tensor& tensor,  // throws StorageError
                 const std::string& dataset = "fields");

}  // namespace braid::data
