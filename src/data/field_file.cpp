// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <optional>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "data/field_dataset.h"
#include "data/time_axis.h"

namespace braid::data {
namespace {

int64_t physical_memory() {
  return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE);
}

std::vector<int64_t> sizes_of(const FieldDataset& dataset) {
  std::vector<int64_t> sizes;
  for (const Axis& axis : dataset.layout.axes) sizes.push_back(axis.size);
  return sizes;
}

// The bytes of a dataset, or nothing if 64 bits do not count them: a damaged head may say any
// shape.
std::optional<int64_t> extent_of(const FieldDataset& dataset) {
  int64_t bytes = dataset.packing.size;
  for (const int64_t size : sizes_of(dataset))
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return bytes;
}

[[noreturn]] void complain_of_extent(const FieldDataset& dataset, int64_t there) {
  throw DataError(
      {.what = fmt::format(
           "{} is truncated or damaged: {} of [{}] does not lie within its {} bytes",
           dataset.path.string(), dataset.name, fmt::join(sizes_of(dataset), ", "), there),
       .why = "an interrupted download or copy leaves a shorter file",
       .fix = "fetch the file again"});
}

bool same_places(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.empty() || b.empty()) return true;
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-3; });
}

int open_bytes(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) return descriptor;
  throw DataError({.what = fmt::format("cannot open {}: {}", path.string(), std::strerror(errno)),
                   .why = "every file of a data folder is read",
                   .fix = errno == EMFILE ? "raise the number of open files: ulimit -n 4096"
                                          : "do not change data files while they are read"});
}

}  // namespace

FieldFile::FieldFile(std::filesystem::path path, const FieldNames& names, KeepOpen keep)
    : path_(std::move(path)) {
  {
    const Hdf5Lock lock;
    open(names);
  }
  auto handles = open_handles();
  check_extents(*handles);
  if (keep == KeepOpen::yes) kept_ = std::move(handles);
}

FieldFile::~FieldFile() = default;

void FieldFile::open(const FieldNames& names) {
  const Hdf5Id file = hdf5_open(path_);
  const bool single = names.variables.empty();
  for (const std::string& name : single ? std::vector{names.dataset} : names.variables) {
    datasets_.push_back(describe_dataset(file, path_, name, names));
    datasets_.back().place = datasets_.size() - 1;
    check_grid(datasets_.back());
    for (const int64_t level : datasets_.back().levels)
      channels_.push_back({datasets_.size() - 1, level});
  }
  const bool chosen = std::ranges::any_of(datasets_, [](const FieldDataset& dataset) {
    return dataset.layout.named && dataset.layout.level >= 0;
  });
  if (!names.levels.empty() && !chosen)
    throw DataError({.what = fmt::format("data.levels is set, but {} has no dimension of levels",
                                         path_.string()),
                     .why = "levels are chosen by the coordinate of a netCDF dimension",
                     .fix = "leave data.levels empty"});
  const FieldLayout& layout = datasets_[0].layout;
  shape_ = {layout.frames(), static_cast<int64_t>(channels_.size()), layout.rows().size,
            layout.columns().size};
  take_info();
}

void FieldFile::take_info() {
  const FieldLayout& layout = datasets_[0].layout;
  times_ = std::make_unique<TimeAxis>(time_axis_of(layout.times));
  for (const FieldDataset& dataset : datasets_) {
    const auto names = dataset.channel_names(/*alone=*/datasets_.size() == 1);
    info_.names.insert(info_.names.end(), names.begin(), names.end());
    info_.units.insert(info_.units.end(), dataset.levels.size(), dataset.units);
  }
  if (std::ranges::all_of(info_.units, [](const std::string& unit) { return unit.empty(); }))
    info_.units.clear();
  if (layout.rows().degrees) info_.latitudes = layout.rows().values;
  if (layout.columns().degrees) info_.longitudes = layout.columns().values;
}

void FieldFile::check_grid(const FieldDataset& dataset) const {
  const FieldDataset& first = datasets_[0];
  const FieldLayout &a = first.layout, &b = dataset.layout;
  const bool same_sizes = a.frames() == b.frames() && a.rows().size == b.rows().size &&
                          a.columns().size == b.columns().size;
  if (!same_sizes)
    throw DataError(
        {.what = fmt::format("variables {} and {} of {} have the shapes [{}] and [{}]", first.name,
                             dataset.name, path_.string(), fmt::join(sizes_of(first), ", "),
                             fmt::join(sizes_of(dataset), ", ")),
         .why = "the channels of a sample lie on one grid",
         .fix = "take one of them out of data.variables"});
  if (same_places(a.rows().values, b.rows().values) &&
      same_places(a.columns().values, b.columns().values))
    return;
  throw DataError({.what = fmt::format("variables {} and {} of {} have different coordinates",
                                       first.name, dataset.name, path_.string()),
                   .why = "the channels of a sample lie on one grid",
                   .fix = "regrid one of them (cdo remapbil), or take it out of data.variables"});
}

void FieldFile::check_extents(const FieldHandles& handles) const {
  struct stat status = {};
  if (::fstat(handles.descriptor, &status) != 0) status.st_size = 0;
  for (const FieldDataset& dataset : datasets_) {
    const auto extent = extent_of(dataset);
    int64_t end = 0;
    const bool within =
        extent && (dataset.offset < 0 || (!__builtin_add_overflow(*extent, dataset.offset, &end) &&
                                          status.st_size >= end));
    if (!within) complain_of_extent(dataset, status.st_size);
  }
  const int64_t plane = shape_.height * shape_.width;  // counted: it is a part of an extent
  int64_t frame = 0;
  if (!__builtin_mul_overflow(plane, shape_.channels * 4, &frame) && frame <= physical_memory())
    return;
  throw DataError(
      {.what = fmt::format("a frame of {} has {} channels of [{}, {}]: {}", path_.string(),
                           shape_.channels, shape_.height, shape_.width, to_text(Bytes{frame})),
       .why = fmt::format("it must fit the {} of memory that this machine has",
                          to_text(Bytes{physical_memory()})),
       .fix = "name another dataset, or write smaller fields"});
}

std::unique_ptr<FieldHandles> FieldFile::open_handles() const {
  auto handles = std::make_unique<FieldHandles>();
  handles->descriptor = open_bytes(path_);
  if (direct()) return handles;
  const Hdf5Lock lock;
  const Hdf5Id file = hdf5_open(path_);
  for (const FieldDataset& dataset : datasets_)
    handles->datasets.push_back(
        dataset.offset >= 0 ? Hdf5Id() : open_dataset(file, dataset.name, path_.string()));
  return handles;
}

bool FieldFile::direct() const {
  return std::ranges::all_of(datasets_, [](const auto& dataset) { return dataset.offset >= 0; });
}

bool FieldFile::written() const { return std::ranges::all_of(datasets_, &FieldDataset::written); }

std::string FieldFile::channel_name(int64_t channel) const {
  const auto at = static_cast<size_t>(channel);
  return at < info_.names.size() ? info_.names[at] : fmt::format("channel {}", channel);
}

// The channels from `channel` on whose levels lie one after the other in one dataset.
int64_t FieldFile::run_from(int64_t channel, int64_t end) const {
  int64_t next = channel + 1;
  const auto at = [&](int64_t c) { return channels_[static_cast<size_t>(c)]; };
  while (next < end && at(next).dataset == at(channel).dataset &&
         at(next).level == at(next - 1).level + 1)
    ++next;
  return next - channel;
}

int64_t FieldFile::read(const Slab& slab, float* out, const Scaling& scaling) const {
  std::unique_ptr<FieldHandles> opened;
  if (!kept_) opened = open_handles();
  const FieldHandles& handles = kept_ ? *kept_ : *opened;
  const int64_t end = slab.channel + slab.channels, plane = slab.rows * slab.cols;
  int64_t missing = 0;
  for (int64_t channel = slab.channel; channel < end;) {
    const Channel& first = channels_[static_cast<size_t>(channel)];
    const FieldDataset& dataset = datasets_[first.dataset];
    const int64_t levels = run_from(channel, end);
    missing += dataset.read(handles,
                            {.frame = slab.frame,
                             .level = first.level,
                             .levels = levels,
                             .row = slab.row,
                             .rows = slab.rows,
                             .col = slab.col,
                             .cols = slab.cols},
                            out + (channel - slab.channel) * plane, {scaling, channel});
    bytes_read_ += levels * plane * dataset.packing.size;
    channel += levels;
  }
  return missing;
}

}  // namespace braid::data
