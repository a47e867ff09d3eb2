// SPDX-License-Identifier: BSD-3-Clause
// One dataset of a file of fields: where its values lie, how they are packed, and boxes read from
// it. Internal to field_file.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/field_layout.h"
#include "data/packing.h"

namespace braid::data {

struct FieldNames;
struct Scaling;

// What it takes to read: closed under the lock of the library.
struct FieldHandles {
  int descriptor = -1;
  std::vector<Hdf5Id> datasets = {};  // one per dataset, invalid where bytes are read directly

  FieldHandles() = default;
  ~FieldHandles();
  FieldHandles(FieldHandles&&) = delete;
  FieldHandles& operator=(FieldHandles&&) = delete;
};

// A box of one frame; its levels lie one after the other in the file.
struct DatasetBox {
  int64_t frame = 0;
  int64_t level = 0, levels = 1;
  int64_t row = 0, rows = 1;
  int64_t col = 0, cols = 1;
};

// Scales planes in place: the first of them is `channel`.
struct PlaneScaling {
  const Scaling& by;
  int64_t channel = 0;
  void apply(float* values, int64_t count, int64_t plane) const;
};

struct FieldDataset {
  std::string name;
  size_t place = 0;  // among the datasets of the file
  std::filesystem::path path;
  FieldLayout layout;
  Packing packing;
  int64_t offset = -1;  // of the first byte in the file; -1: through the library
  bool written = true;  // false: the file holds only its shape
  std::string units;
  std::vector<int64_t> levels;  // chosen ones, one per channel

  std::vector<std::string> channel_names(bool alone) const;  // empty: the file names none
  // Both fill out[levels, rows, cols] and return the number of missing values.
  int64_t read(const FieldHandles& handles, const DatasetBox& box, float* out,
               const PlaneScaling& scaling) const;

 private:
  int64_t read_direct(int descriptor, const DatasetBox& box, float* out,
                      const PlaneScaling& scaling) const;
  int64_t read_library(const Hdf5Id& id, const DatasetBox& box, float* out,
                       const PlaneScaling& scaling) const;
  int64_t read_stored(const Hdf5Id& id, const DatasetBox& box, float* out) const;
};

FieldDataset describe_dataset(const Hdf5Id& file, const std::filesystem::path& path,
                              const std::string& name, const FieldNames& names);
void check_number_type(const Hdf5Id& dataset, const std::string& owner);  // throws DataError
// Throws DataError if the values lie in files outside of the folder of the dataset's file.
void check_external(const Hdf5Id& dataset, const std::string& owner);
Hdf5Id find_dataset(const Hdf5Id& file, const std::string& name);  // invalid if it is not there
// Throws DataError with the names that are there.
Hdf5Id open_dataset(const Hdf5Id& file, const std::string& name, const std::string& path);

}  // namespace braid::data
