// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>

#include "braid/core/error.h"
#include "data/hdf5.h"

namespace braid::data {

static_assert(std::endian::native == std::endian::little, "files are read as little-endian");

// What netCDF's attributes say about a variable.
struct Packing {
  double scale = 1, offset = 0;
  bool has_fill = false;
  float fill = 0;
  bool plain() const { return scale == 1 && offset == 0 && !has_fill; }
};

struct FieldFile::Dataset {
  std::string name;
  std::vector<int64_t> dims;
  int64_t element = 4;  // bytes on disk
  int64_t offset = -1;  // of the first byte in the file; -1: through the library
  Hdf5Id id;            // open only if through the library
  Packing packing;
};

namespace {

constexpr int64_t field_block =
    1 << 16;  // elements; 256 kB of f4 stay in the cache until they are scaled

std::vector<int64_t> dims_of(const Hdf5Id& dataset) {
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(static_cast<size_t>(std::max(rank, 0)));
  if (rank > 0) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

bool read_attribute(const Hdf5Id& dataset, const char* name, double& value) {
  if (H5Aexists(dataset, name) <= 0) return false;
  const Hdf5Id attribute(H5Aopen(dataset, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Id space(H5Aget_space(attribute), H5Sclose);
  if (H5Sget_simple_extent_npoints(space) != 1) return false;
  return H5Aread(attribute, H5T_NATIVE_DOUBLE, &value) >= 0;
}

Packing packing_of(const Hdf5Id& dataset) {
  Packing packing;
  read_attribute(dataset, "scale_factor", packing.scale);
  read_attribute(dataset, "add_offset", packing.offset);
  double fill = 0;
  if (read_attribute(dataset, "_FillValue", fill)) {
    packing.has_fill = true;
    packing.fill = static_cast<float>(fill);
  }
  return packing;
}

// The place of plain bytes that need no library: contiguous, in this file, f4 or f8 little-endian.
int64_t direct_offset(const Hdf5Id& dataset, const Hdf5Id& type) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose);
  if (H5Pget_layout(creation) != H5D_CONTIGUOUS || H5Pget_external_count(creation) != 0) return -1;
  if (H5Tequal(type, H5T_IEEE_F32LE) <= 0 && H5Tequal(type, H5T_IEEE_F64LE) <= 0) return -1;
  const haddr_t address = H5Dget_offset(dataset);
  return address == HADDR_UNDEF ? -1 : static_cast<int64_t>(address);
}

std::string missing_dataset_fix(const std::string& name, const std::vector<std::string>& names) {
  if (names.empty()) return "write the data into the file, or take it out of the folder";
  const std::string near = nearest(name, names);
  if (!near.empty()) return fmt::format("set data.dataset to {}", near);
  return fmt::format("set data.dataset to one of: {}", fmt::join(names, ", "));
}

Hdf5Id open_dataset(const Hdf5Id& file, const std::string& name, const std::string& path) {
  Hdf5Id id(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (id) return id;
  const std::vector<std::string> names = hdf5_datasets(file);
  throw DataError({.what = fmt::format("{} has no dataset {}", path, name),
                   .why = names.empty() ? "the file holds no dataset at all"
                                        : fmt::format("the file holds: {}", fmt::join(names, ", ")),
                   .fix = missing_dataset_fix(name, names)});
}

void check_number_type(const Hdf5Id& type, const std::string& name, const std::string& file) {
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT || kind == H5T_INTEGER) return;
  throw DataError({.what = fmt::format("dataset {} of {} does not hold numbers", name, file),
                   .why = "fields are floats or integers on disk",
                   .fix = "name another dataset in data.dataset"});
}

// In place: unpack, then scale.
void finish_field(float* values, int64_t count, const Packing& packing, const Scaling& scaling,
                  int64_t channel) {
  if (!packing.plain()) {
    const auto scale = static_cast<float>(packing.scale),
               offset = static_cast<float>(packing.offset);
    for (int64_t i = 0; i < count; ++i) {
      const bool missing = packing.has_fill && values[i] == packing.fill;
      values[i] = missing ? std::numeric_limits<float>::quiet_NaN() : values[i] * scale + offset;
    }
  }
  if (scaling.mean.empty()) return;
  const float mean = scaling.mean[channel], std = scaling.std[channel];
  for (int64_t i = 0; i < count; ++i) values[i] = (values[i] - mean) / std;
}

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

}  // namespace

FieldFile::FieldFile(std::filesystem::path path, const FieldNames& names) : path_(std::move(path)) {
  try {
    {
      const Hdf5Lock lock;
      open(names);
    }
    descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    for (const auto& dataset : datasets_) check_extent(*dataset);
  } catch (...) {
    close();
    throw;
  }
}

FieldFile::~FieldFile() { close(); }

void FieldFile::close() {
  const Hdf5Lock lock;
  datasets_.clear();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FieldFile::open(const FieldNames& names) {
  const Hdf5Id file = hdf5_open(path_);
  const bool single = names.variables.empty();
  for (const std::string& name : single ? std::vector{names.dataset} : names.variables) {
    const Hdf5Id id = open_dataset(file, name, path_.string());
    const Hdf5Id type(H5Dget_type(id), H5Tclose);
    check_number_type(type, name, path_.string());
    auto dataset = std::make_unique<Dataset>();
    dataset->name = name;
    dataset->dims = dims_of(id);
    dataset->element = static_cast<int64_t>(H5Tget_size(type));
    dataset->packing = packing_of(id);
    dataset->offset = direct_offset(id, type);
    if (dataset->offset < 0) dataset->id = open_dataset(file, name, path_.string());
    datasets_.push_back(std::move(dataset));
    check_dims(*datasets_.back(), single);
  }
  const std::vector<int64_t>& dims = datasets_[0]->dims;
  const int64_t channels =
      single ? (dims.size() == 4 ? dims[1] : 1) : static_cast<int64_t>(datasets_.size());
  shape_ = {dims[0], channels, dims[dims.size() - 2], dims.back()};
}

void FieldFile::check_dims(const Dataset& dataset, bool may_have_channels) const {
  const size_t rank = dataset.dims.size();
  const Dataset& first = *datasets_[0];
  if (rank != 3 && !(may_have_channels && rank == 4))
    throw DataError(
        {.what = fmt::format("dataset {} of {} has the shape [{}]", dataset.name, path_.string(),
                             fmt::join(dataset.dims, ", ")),
         .why = may_have_channels
                    ? "fields are [time, channel, height, width] or [time, height, width]"
                    : "a variable is [time, height, width], one a channel",
         .fix = "name another dataset in data.dataset or data.variables"});
  if (first.dims != dataset.dims)
    throw DataError(
        {.what = fmt::format("variables {} and {} of {} have the shapes [{}] and [{}]", first.name,
                             dataset.name, path_.string(), fmt::join(first.dims, ", "),
                             fmt::join(dataset.dims, ", ")),
         .why = "the channels of a sample lie on one grid",
         .fix = "take one of them out of data.variables"});
}

void FieldFile::check_extent(const Dataset& dataset) const {
  int64_t end = dataset.element;
  bool countable = true;  // a damaged head may say any shape
  for (const int64_t dim : dataset.dims)
    countable &= dim >= 0 && !__builtin_mul_overflow(end, dim, &end);
  if (dataset.offset >= 0) countable &= !__builtin_add_overflow(end, dataset.offset, &end);
  struct stat status = {};
  const bool sized = descriptor_ >= 0 && ::fstat(descriptor_, &status) == 0;
  if (countable && (dataset.offset < 0 || (sized && status.st_size >= end))) return;
  throw DataError({.what = fmt::format(
                       "{} is truncated or damaged: {} of [{}] does not lie within its {} bytes",
                       path_.string(), dataset.name, fmt::join(dataset.dims, ", "),
                       static_cast<int64_t>(status.st_size)),
                   .why = "an interrupted download or copy leaves a shorter file",
                   .fix = "fetch the file again"});
}

bool FieldFile::direct() const {
  for (const auto& dataset : datasets_)
    if (dataset->offset < 0) return false;
  return true;
}

void FieldFile::read(const Slab& slab, float* out, const Scaling& scaling) const {
  const auto read_one = [&](const Dataset& dataset, const Slab& part, float* to,
                            const Scaling& by) {
    if (dataset.offset >= 0) return read_direct(dataset, part, to, by);
    read_library(dataset, part, to, by);
  };
  if (datasets_.size() == 1) return read_one(*datasets_[0], slab, out, scaling);
  for (int64_t c = 0; c < slab.channels; ++c) {
    Slab part = slab;
    const int64_t channel = slab.channel + c;
    part.channel = 0, part.channels = 1;
    Scaling by;
    if (!scaling.mean.empty()) by = {{scaling.mean[channel]}, {scaling.std[channel]}};
    read_one(*datasets_[channel], part, out + c * slab.rows * slab.cols, by);
  }
}

void FieldFile::read_direct(const Dataset& dataset, const Slab& slab, float* out,
                            const Scaling& scaling) const {
  const int64_t stored = dataset.dims.size() == 4 ? dataset.dims[1] : 1;
  // Whole rows lie one after the other in the file; parts of rows do not.
  const bool whole_rows = slab.cols == shape_.width;
  const int64_t runs = whole_rows ? 1 : slab.rows,
                run = whole_rows ? slab.rows * slab.cols : slab.cols;
  std::vector<double> wide(dataset.element == 8 ? static_cast<size_t>(std::min(run, field_block))
                                                : 0);
  for (int64_t c = 0; c < slab.channels; ++c) {
    const int64_t plane = slab.frame * stored + slab.channel + c;
    for (int64_t r = 0; r < runs; ++r) {
      const int64_t first = (plane * shape_.height + slab.row + r) * shape_.width + slab.col;
      for (int64_t done = 0; done < run; done += field_block) {
        const int64_t count = std::min(field_block, run - done);
        float* to = out + (c * runs + r) * run + done;
        void* raw = wide.empty() ? static_cast<void*>(to) : wide.data();
        read_bytes(descriptor_, raw, count * dataset.element,
                   dataset.offset + (first + done) * dataset.element, path_);
        if (!wide.empty()) std::copy_n(wide.data(), count, to);
        finish_field(to, count, dataset.packing, scaling, slab.channel + c);
      }
    }
  }
  bytes_read_ += slab.channels * slab.rows * slab.cols * dataset.element;
}

void FieldFile::read_library(const Dataset& dataset, const Slab& slab, float* out,
                             const Scaling& scaling) const {
  const bool four = dataset.dims.size() == 4;
  const auto h = [](int64_t n) { return static_cast<hsize_t>(n); };
  std::vector<hsize_t> start = {h(slab.frame), h(slab.row), h(slab.col)};
  std::vector<hsize_t> count = {1, h(slab.rows), h(slab.cols)};
  if (four) {
    start.insert(start.begin() + 1, h(slab.channel));
    count.insert(count.begin() + 1, h(slab.channels));
  }
  {
    const Hdf5Lock lock;
    const Hdf5Id space(H5Dget_space(dataset.id), H5Sclose);
    const Hdf5Id memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                        H5Sclose);
    if (H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr) <
            0 ||
        H5Dread(dataset.id, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, out) < 0)
      throw DataError(
          {.what = fmt::format("cannot read frame {} of {} in {}: {}", slab.frame, dataset.name,
                               path_.string(), hdf5_cause()),
           .why = "the file is damaged, or its compression filter is not installed",
           .fix = fmt::format("run: braid data check {}", path_.parent_path().string())});
  }
  const int64_t plane = slab.rows * slab.cols;
  for (int64_t c = 0; c < slab.channels; ++c)
    finish_field(out + c * plane, plane, dataset.packing, scaling, slab.channel + c);
  bytes_read_ += slab.channels * plane * dataset.element;
}

}  // namespace braid::data
