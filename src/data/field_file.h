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

struct FieldDataset;
struct FieldHandles;
struct TimeAxis;

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

// Many files exceed the limit of open files: then each read opens what it needs.
enum class KeepOpen { yes, no };

class FieldFile {
 public:
  FieldFile(std::filesystem::path path, const FieldNames& names,
            KeepOpen keep = KeepOpen::yes);  // throws DataError
  ~FieldFile();
  FieldFile(const FieldFile&) = delete;
  FieldFile& operator=(const FieldFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  const FieldShape& shape() const { return shape_; }
  // Fills out[channels, rows, cols] with values, NaN where one is missing, and returns how many
  // are. Contiguous f4 and f8 data are read without the HDF5 library, so in parallel.
  int64_t read(const Slab& slab, float* out, const Scaling& scaling = {}) const;
  bool direct() const;   // all its datasets are read without the library
  bool written() const;  // false: a dataset was made, but nothing was ever written into it
  int64_t bytes_read() const { return bytes_read_; }

  const FieldInfo& info() const { return info_; }  // of all channels, rows and columns
  const TimeAxis& times() const { return *times_; }
  std::string channel_name(int64_t channel) const;  // its name, or "channel 3"

 private:
  struct Channel {
    size_t dataset = 0;
    int64_t level = 0;
  };
  void open(const FieldNames& names);
  void take_info();
  void check_grid(const FieldDataset& dataset) const;
  void check_extents(const FieldHandles& handles) const;
  std::unique_ptr<FieldHandles> open_handles() const;
  int64_t run_from(int64_t channel, int64_t end) const;

  std::filesystem::path path_;
  FieldShape shape_;
  FieldInfo info_;
  std::unique_ptr<TimeAxis> times_;
  std::vector<FieldDataset> datasets_;
  std::vector<Channel> channels_;
  std::unique_ptr<FieldHandles> kept_;  // nothing with KeepOpen::no
  mutable std::atomic<int64_t> bytes_read_ = 0;
};

}  // namespace braid::data
