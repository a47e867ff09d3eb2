// SPDX-License-Identifier: BSD-3-Clause
#include "data/fields.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/data/npy.h"
#include "data/made.h"

namespace braid::data {
namespace {

std::string make_hint(const DataOptions& options, Split split) {
  const std::filesystem::path where = split_path(options, split);
  const std::string folder = where.has_parent_path() ? where.parent_path().string() : "data";
  const std::string fix = fmt::format("correct data.{}", split_name(split));
  if (options.kind == Kind::crops)
    return or_make(fix, "slices", where.empty() ? "data/slices" : where.string());
  return or_make(fix, "weather", folder);
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

void check_channels(const DataOptions& options, const FieldFile& file) {
  if (options.channels <= file.shape().channels) return;
  throw DataError({.what = fmt::format("data.channels = {}, but {} has {}", options.channels,
                                       file.path().string(), file.shape().channels),
                   .why = "the first channels of a file are taken",
                   .fix = fmt::format("set data.channels to at most {}", file.shape().channels)});
}

Scaling read_scaling(const DataOptions& options, int64_t wanted, int64_t stored) {
  if (options.means.empty()) return {};
  Scaling scaling{read_channel_values(options.means, wanted, stored),
                  read_channel_values(options.stds, wanted, stored)};
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
  for (const auto& path : find_files(search)) {
    files_.push_back(std::make_unique<FieldFile>(path, names));
    check_same_grid(*files_[0], *files_.back());
    first_.push_back(first_.back() + files_.back()->shape().frames);
  }
  channels_ = shape().channels;
}

FieldFiles::FieldFiles(const DataOptions& options, Split split)
    : FieldFiles({.where = split_path(options, split),
                  .endings = field_endings(),
                  .key = fmt::format("data.{}", split_name(split)),
                  .fix = make_hint(options, split)},
                 {.dataset = options.dataset, .variables = options.variables}) {
  check_channels(options, *files_[0]);
  if (options.channels > 0) channels_ = options.channels;
  scaling_ = read_scaling(options, channels_, shape().channels);
}

FramePlace FieldFiles::place(int64_t frame) const {
  const auto after = std::ranges::upper_bound(first_, frame);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  return {files_[file].get(), frame - first_[file]};
}

std::vector<float> read_channel_values(const std::string& file, int64_t wanted, int64_t stored) {
  const at::Tensor values = read_npy(file).to(c10::kFloat).reshape({-1});
  if (values.numel() != wanted && values.numel() != stored)
    throw DataError(
        {.what = fmt::format("{} holds {} values for {} channels", file, values.numel(), wanted),
         .why = "there is one mean and one standard deviation a channel, [1, C, 1, 1] or [C]",
         .fix = "give the statistics of these data, or set data.channels"});
  const float* first = values.const_data_ptr<float>();
  return {first, first + wanted};
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
