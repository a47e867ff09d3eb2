// SPDX-License-Identifier: BSD-3-Clause
// Small HDF5 files of any type and layout, with values that tell where they come from.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "data/hdf5.h"

namespace braid::data {

// frame * 1000 + channel * 100 + row * 10 + column
inline float field_value(int64_t t, int64_t c, int64_t y, int64_t x) {
  return static_cast<float>(t * 1000 + c * 100 + y * 10 + x);
}

inline std::vector<float> field_values(const std::vector<hsize_t>& dims) {
  std::vector<float> values;
  const hsize_t channels = dims.size() == 4 ? dims[1] : 1;
  for (hsize_t t = 0; t < dims[0]; ++t)
    for (hsize_t c = 0; c < channels; ++c)
      for (hsize_t y = 0; y < dims[dims.size() - 2]; ++y)
        for (hsize_t x = 0; x < dims.back(); ++x)
          values.push_back(field_value(static_cast<int64_t>(t), static_cast<int64_t>(c),
                                       static_cast<int64_t>(y), static_cast<int64_t>(x)));
  return values;
}

struct DatasetFixture {
  std::string name = "fields";
  std::vector<hsize_t> dims = {4, 2, 3, 5};
  std::vector<float> values = {};   // empty: field_values
  hid_t type = -1;                  // on disk; -1: f4
  std::vector<hsize_t> chunk = {};  // with gzip; empty: contiguous
  std::vector<std::pair<std::string, double>> attributes = {};
};

inline void add_dataset(hid_t file, const DatasetFixture& with) {
  const Hdf5Id space(
      H5Screate_simple(static_cast<int>(with.dims.size()), with.dims.data(), nullptr), H5Sclose);
  const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (!with.chunk.empty()) {
    H5Pset_chunk(creation, static_cast<int>(with.chunk.size()), with.chunk.data());
    H5Pset_deflate(creation, 4);
  }
  const Hdf5Id dataset(
      H5Dcreate2(file, with.name.c_str(), with.type < 0 ? H5T_IEEE_F32LE : with.type, space,
                 H5P_DEFAULT, creation, H5P_DEFAULT),
      H5Dclose);
  const std::vector<float> values = with.values.empty() ? field_values(with.dims) : with.values;
  ASSERT_GE(H5Dwrite(dataset, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
  for (const auto& [name, value] : with.attributes) {
    const Hdf5Id scalar(H5Screate(H5S_SCALAR), H5Sclose);
    const Hdf5Id attribute(
        H5Acreate2(dataset, name.c_str(), H5T_NATIVE_DOUBLE, scalar, H5P_DEFAULT, H5P_DEFAULT),
        H5Aclose);
    H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value);
  }
}

inline void write_file(const std::filesystem::path& path,
                       const std::vector<DatasetFixture>& datasets) {
  const Hdf5Lock lock;
  const Hdf5Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  for (const DatasetFixture& dataset : datasets) add_dataset(file, dataset);
}

}  // namespace braid::data
