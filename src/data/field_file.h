// SPDX-License-Identifier: BSD-3-Clause
// One HDF5 or netCDF-4 file of fields [frames, channels, height, width], read by many threads at
// once. Internal.
//
//   FieldFile file("train/1990.h5", {.dataset = "fields"});
//   file.read({.frame = 3, .channels = 20, .rows = 360, .cols = 720}, out);   // only these bytes
//   are read
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "braid/data/field_names.h"
#include "braid/data/source.h"

namespace braid::data {

struct FieldShape {
  int64_t frames = 0, channels = 0, height = 0, width = 0;
  bool operator==(const FieldShape&) const = default;
};

// A box of one frame.
struct Slab {
  int64_t frame = 0;
  int64_t channel = 0, channels = 1;
  int64_t row = 0, rows = 1;
  int64_t col = 0, cols = 1;
};

class FieldFile {
 public:
  FieldFile(std::filesystem::path path, const FieldNames& names);  // throws DataError
  ~FieldFile();
  FieldFile(const FieldFile&) = delete;
  FieldFile& operator=(const FieldFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const FieldShape& shape() const { return shape_; }
  // Fills out[channels, rows, cols]. Contiguous f4 and f8 data are read without the HDF5 library,
  // so in parallel.
  void read(const Slab& slab, float* out, const Scaling& scaling = {}) const;
  bool direct() const;  // all its datasets are read without the library
  int64_t bytes_read() const { return bytes_read_; }

 private:
  struct Dataset;
  void open(const FieldNames& names);
  void close();
  void check_dims(const Dataset& dataset, bool may_have_channels) const;
  void check_extent(const Dataset& dataset) const;
  void read_direct(const Dataset& dataset, const Slab& slab, float* out,
                   const Scaling& scaling) const;
  void read_library(const Dataset& dataset, const Slab& slab, float* out,
                    const Scaling& scaling) const;

  std::filesystem::path path_;
  FieldShape shape_;
  int descriptor_ = -1;
  std::vector<std::unique_ptr<Dataset>> datasets_;  // one, or one a channel
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace braid::data
