// SPDX-License-Identifier: BSD-3-Clause
// Boxes of values out of a dataset: bytes of the file where they lie in one piece, the library
// elsewhere.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "braid/core/error.h"
#include "braid/data/source.h"
#include "data/field_dataset.h"

namespace braid::data {
namespace {

constexpr int64_t field_block =
    1 << 16;  // elements; 256 kB of f4 stay in the cache until they are scaled

void read_bytes(int descriptor, void* out, int64_t bytes, int64_t offset,
                const std::filesystem::path& path) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(descriptor, at, static_cast<size_t>(bytes), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      throw DataError({.what = fmt::format("cannot read {} at byte {}: {}", path.string(), offset,
                                           got == 0 ? "the file ends there" : std::strerror(errno)),
                       .why = "the file was whole when it was opened",
                       .fix = "do not change data files while they are read; check the disk"});
    at += got, bytes -= got, offset += got;
  }
}

// Where levels, rows and columns lie in a box that was read in the order of the file.
struct StoredStrides {
  int64_t level = 0, row = 0, col = 0;
};

StoredStrides strides_of(const FieldLayout& layout, const std::vector<hsize_t>& count) {
  StoredStrides strides;
  int64_t stride = 1;
  for (int i = static_cast<int>(count.size()) - 1; i >= 0; --i) {
    if (i == layout.level) strides.level = stride;
    if (i == layout.row) strides.row = stride;
    if (i == layout.column) strides.col = stride;
    stride *= static_cast<int64_t>(count[static_cast<size_t>(i)]);
  }
  return strides;
}

void put_in_order(const float* from, const StoredStrides& strides, const DatasetBox& box,
                  float* out) {
  for (int64_t l = 0; l < box.levels; ++l)
    for (int64_t r = 0; r < box.rows; ++r) {
      const float* row = from + l * strides.level + r * strides.row;
      for (int64_t c = 0; c < box.cols; ++c) *out++ = row[c * strides.col];
    }
}

}  // namespace

void PlaneScaling::apply(float* values, int64_t count, int64_t plane) const {
  if (by.mean.empty()) return;
  const auto at = static_cast<size_t>(channel + plane);
  const float mean = by.mean[at], std = by.std[at];
  for (int64_t i = 0; i < count; ++i) values[i] = (values[i] - mean) / std;
}

FieldHandles::~FieldHandles() {
  if (descriptor >= 0) ::close(descriptor);
  const Hdf5Lock lock;
  datasets.clear();
}

int64_t FieldDataset::read(const FieldHandles& handles, const DatasetBox& box, float* out,
                           const PlaneScaling& scaling) const {
  if (offset >= 0) return read_direct(handles.descriptor, box, out, scaling);
  return read_library(handles.datasets[place], box, out, scaling);
}

int64_t FieldDataset::read_direct(int descriptor, const DatasetBox& box, float* out,
                                  const PlaneScaling& scaling) const {
  const int64_t width = layout.columns().size, height = layout.rows().size;
  // Whole rows lie one after the other in the file; parts of rows do not.
  const bool whole_rows = box.cols == width;
  const int64_t runs = whole_rows ? 1 : box.rows, run = whole_rows ? box.rows * box.cols : box.cols;
  std::vector<double> wide(packing.size == 8 ? static_cast<size_t>(std::min(run, field_block)) : 0);
  int64_t missing = 0;
  for (int64_t l = 0; l < box.levels; ++l) {
    const int64_t plane = box.frame * layout.levels() + box.level + l;
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t first = (plane * height + box.row + r) * width + box.col;
      for (int64_t done = 0; done < run; done += field_block) {
        const int64_t count = std::min(field_block, run - done);
        float* to = out + (l * runs + r) * run + done;
        void* raw = wide.empty() ? static_cast<void*>(to) : wide.data();
        read_bytes(descriptor, raw, count * packing.size, offset + (first + done) * packing.size,
                   path);
        missing += packing.unpack(raw, count, to);
        scaling.apply(to, count, l);
      }
    }
  }
  return missing;
}

int64_t FieldDataset::read_stored(const Hdf5Id& id, const DatasetBox& box, float* out) const {
  const auto h = [](int64_t n) { return static_cast<hsize_t>(n); };
  std::vector<hsize_t> start(layout.axes.size(), 0), count(layout.axes.size(), 1);
  const auto select = [&](int place_in, int64_t first, int64_t size) {
    if (place_in < 0) return;
    start[static_cast<size_t>(place_in)] = h(first), count[static_cast<size_t>(place_in)] = h(size);
  };
  select(layout.time, box.frame, 1);
  select(layout.level, box.level, box.levels);
  select(layout.row, box.row, box.rows);
  select(layout.column, box.col, box.cols);
  const int64_t values = box.levels * box.rows * box.cols;
  const bool in_place = packing.memory_bytes() == 4 && layout.in_order();
  const auto raw =
      std::make_unique_for_overwrite<int64_t[]>(in_place ? 0 : static_cast<size_t>(values));
  void* memory_at = in_place ? static_cast<void*>(out) : raw.get();
  {
    const Hdf5Lock lock;
    const Hdf5Id space(H5Dget_space(id), H5Sclose);
    const Hdf5Id memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                        H5Sclose);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) <
            0 ||
        H5Dread(id, packing.memory_type(), memory, space, H5P_DEFAULT, memory_at) < 0)
      throw DataError(
          {.what = fmt::format("cannot read frame {} of {} in {}: {}", box.frame, name,
                               path.string(), hdf5_cause()),
           .why = "the file is damaged, or its compression filter is not installed",
           .fix = fmt::format("run: braid data check {}", path.parent_path().string())});
  }
  if (layout.in_order()) return packing.unpack(memory_at, values, out);
  const auto stored = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(values));
  const int64_t missing = packing.unpack(memory_at, values, stored.get());
  put_in_order(stored.get(), strides_of(layout, count), box, out);
  return missing;
}

int64_t FieldDataset::read_library(const Hdf5Id& id, const DatasetBox& box, float* out,
                                   const PlaneScaling& scaling) const {
  const int64_t missing = read_stored(id, box, out);
  const int64_t plane = box.rows * box.cols;
  for (int64_t l = 0; l < box.levels; ++l) scaling.apply(out + l * plane, plane, l);
  return missing;
}

}  // namespace braid::data
