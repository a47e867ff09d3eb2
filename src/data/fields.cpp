// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/core/error.h"

namespace braid::data {
namespace {

// Made-up data are recommended where they cannot come among anybody's own.
bool may_be_made(const std::filesystem::path& folder) {
  std::error_code error;
  using Walk = std::filesystem::recursive_directory_iterator;
  for (Walk it(folder, std::filesystem::directory_options::skip_permission_denied, error), end;
       !error && it != end; it.increment(error))
    if (!it->is_directory(error)) return false;
  return true;
}

std::string make_hint(const DataOptions& options, Split split) {
  const std::filesystem::path where = split_path(options, split);
  const bool crops = options.kind == Kind::crops;
  std::filesystem::path folder = where.has_parent_path() ? where.parent_path() : "data";
  if (crops) folder = where.empty() ? "data/slices" : where;
  const std::string correct = fmt::format("correct data.{}", split_name(split));
  if (!may_be_made(folder)) return correct;
  return fmt::format("{}, or make some: braid data make {} {}", correct,
                     crops ? "slices" : "weather", folder.string());
}

void check_same_grid(const FieldFile& first, const FieldFile& other) {
  const FieldShape &a = first.shape(), &b = other.shape();
  if (a.channels == b.channels && a.height == b.height && a.width == b.width) return;
  throw DataError(
      {.what = fmt::format("{} has fields of [{}, {}, {}], {} of [{}, {}, {}]",
                           first.path().string(), a.channels, a.height, a.width,
                           other.path().string(), b.channels, b.height, b.width),
       .why = "all files of a split have the same channels and grid; only their lengths may differ",
       .fix = fmt::format("take one of them out of {}", other.path().parent_path().string())});
}

bool same_coordinates(const std::vector<double>& a, const std::vector<double>& b) {
  return std::ranges::equal(a, b, [](double x, double y) { return std::abs(x - y) <= 1e-3; });
}

// Maps turned round in one of the files would be averaged and learnt as they are.
void check_same_coordinates(const FieldFile& first, const FieldFile& other) {
  const FieldInfo &a = first.info(), &b = other.info();
  const char* differs = a.names != b.names ? "channels" : nullptr;
  if (!same_coordinates(a.latitudes, b.latitudes)) differs = "latitudes";
  if (!same_coordinates(a.longitudes, b.longitudes)) differs = "longitudes";
  if (differs == nullptr) return;
  throw DataError({.what = fmt::format("{} and {} have different {}", first.path().string(),
                                       other.path().string(), differs),
                   .why = "all files of a split have the same channels and grid",
                   .fix = fmt::format("regrid or turn one of them round (cdo remapbil, cdo "
                                      "invertlat), or take it out of {}",
                                      other.path().parent_path().string())});
}

void check_channels(const DataOptions& options, const FieldFile& file) {
  if (options.channels <= file.shape().channels) return;
  throw DataError({.what = fmt::format("data.channels = {}, but {} has {}", options.channels,
                                       file.path().string(), file.shape().channels),
                   .why = "the first channels of a file are taken",
                   .fix = fmt::format("set data.channels to at most {}", file.shape().channels)});
}

Scaling read_scaling(const DataOptions& options, const ChannelCount& channels) {
  if (options.means.empty()) return {};
  Scaling scaling{values_by_channel(options, "data.means", channels),
                  values_by_channel(options, "data.stds", channels)};
  const auto bad = std::ranges::find_if(scaling.std, [](float s) { return !(s > 0); });
  if (bad != scaling.std.end())
    throw DataError({.what = fmt::format("data.stds = {}: channel {} has the standard deviation {}",
                                         options.stds, bad - scaling.std.begin(), *bad),
                     .why = "fields are divided by it",
                     .fix = "compute the standard deviations again"});
  return scaling;
}

}  // namespace

FieldFiles::FieldFiles(const FileSearch& search, const FieldNames& names) {
  first_ = {0};
  const auto paths = find_files(search);
  constexpr size_t most_open = 256;  // of the 1024 that a process may usually have
  const KeepOpen keep = paths.size() <= most_open ? KeepOpen::yes : KeepOpen::no;
  for (const auto& path : paths) {
    files_.push_back(std::make_unique<FieldFile>(path, names, keep));
    check_same_grid(*files_[0], *files_.back());
    check_same_coordinates(*files_[0], *files_.back());
    first_.push_back(first_.back() + files_.back()->shape().frames);
  }
  channels_ = shape().channels;
}

FieldFiles::FieldFiles(const DataOptions& options, Split split)
    : FieldFiles(
          {.where = split_path(options, split),
           .endings = field_endings(),
           .key = fmt::format("data.{}", split_name(split)),
           .fix = make_hint(options, split)},
          {.dataset = options.dataset, .variables = options.variables, .levels = options.levels}) {
  check_channels(options, *files_[0]);
  if (options.channels > 0) channels_ = options.channels;
  DataOptions read = options;  // once: the files may change
  read.statistics = statistics_ = read_statistics(options);
  scaling_ = read_scaling(read, {.wanted = channels_, .stored = shape().channels});
}

FieldInfo FieldFiles::info(int64_t height, int64_t width) const {
  FieldInfo info = files_[0]->info();
  const auto cut = [](auto& list, int64_t size) {
    if (list.size() > static_cast<size_t>(size)) list.resize(static_cast<size_t>(size));
  };
  cut(info.names, channels_);
  cut(info.units, channels_);
  cut(info.latitudes, height);
  cut(info.longitudes, width);
  return info;
}

FramePlace FieldFiles::place(int64_t frame) const {
  const auto after = std::ranges::upper_bound(first_, frame);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  return {files_[file].get(), frame - first_[file]};
}

std::vector<float> values_by_channel(const DataOptions& options, const char* key,
                                     const ChannelCount& channels) {
  const auto which = std::ranges::find_if(statistic_files(), [&](const StatisticFile& one) {
    return std::string_view(one.key) == key;
  });
  std::vector<float> values = read_statistic(options, *which);
  const auto count = static_cast<int64_t>(values.size());
  if (count != channels.wanted && count != channels.stored)
    throw DataError(
        {.what = fmt::format("{} holds {} values for {} channels", options.*which->file, count,
                             channels.wanted),
         .why = "there is one mean and one standard deviation a channel, [1, C, 1, 1] or [C]",
         .fix = "give the statistics of these data, or set data.channels"});
  values.resize(static_cast<size_t>(channels.wanted));
  return values;
}

const std::string& split_path(const DataOptions& options, Split split) {
  return split == Split::train   ? options.train
         : split == Split::valid ? options.valid
                                 : options.test;
}

std::optional<int64_t> split_limit(const DataOptions& options, Split split) {
  return split == Split::train   ? options.limit_train
         : split == Split::valid ? options.limit_valid
                                 : options.limit_test;
}

const char* split_name(Split split) {
  return split == Split::train ? "train" : split == Split::valid ? "valid" : "test";
}

}  // namespace braid::data
