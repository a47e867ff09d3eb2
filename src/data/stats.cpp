// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/stats.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/in_parts.h"
#include "braid/data/npy.h"
#include "data/fields.h"
#include "data/files.h"
#include "data/moments.h"
#include "data/tensor.h"

namespace braid::data {
namespace {

// Of `count` frames from `first` on: frame by frame, and in each channel by channel.
std::vector<Moments> moments_of_frames(const FieldFiles& files, int64_t first, int64_t count) {
  const FieldShape& shape = files.shape();
  const int64_t plane = shape.height * shape.width;
  std::vector<Moments> moments(static_cast<size_t>(count * shape.channels));
  in_parts(count, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> fields(static_cast<size_t>(shape.channels * plane));
    for (int64_t t = begin; t < end; ++t) {
      const FramePlace place = files.place(first + t);
      place.file->read({.frame = place.frame,
                        .channels = shape.channels,
                        .rows = shape.height,
                        .cols = shape.width},
                       fields.data());
      for (int64_t c = 0; c < shape.channels; ++c)
        moments[static_cast<size_t>(t * shape.channels + c)] =
            moments_of(fields.data() + c * plane, plane);
    }
  });
  return moments;
}

ChannelStats channel_stats(const Moments& moments, const std::string& name,
                           const std::string& where) {
  if (moments.count == 0)
    throw DataError(
        {.what = fmt::format("channel {} of {} has no value", name, where),
         .why = fmt::format("all {} of its points are NaN or infinite", moments.missing),
         .fix = "leave it out, or write the files again; braid data check finds where it begins"});
  return {.name = name,
          .mean = moments.mean,
          .std = moments.std(),
          .least = moments.least,
          .most = moments.most,
          .missing = moments.missing};
}

void write_channels(const std::filesystem::path& file, const std::vector<ChannelStats>& channels,
                    double ChannelStats::* value) {
  const at::Tensor tensor =
      empty_tensor({1, static_cast<int64_t>(channels.size()), 1, 1}, c10::kFloat);
  std::ranges::transform(channels, tensor.mutable_data_ptr<float>(),
                         [&](const auto& channel) { return static_cast<float>(channel.*value); });
  write_npy(file, tensor);
}

}  // namespace

FieldStats field_stats(const std::string& where, const FieldNames& names,
                       const Progress& progress) {
  const FieldFiles files({.where = where,
                          .endings = field_endings(),
                          .key = "the data",
                          .fix = "name the folder of the training data"},
                         names);
  const auto channels = static_cast<size_t>(files.shape().channels);
  constexpr int64_t block = 16;  // frames that threads share
  std::vector<Moments> all(channels);
  for (int64_t first = 0; first < files.frames(); first += block) {
    const int64_t count = std::min(block, files.frames() - first);
    const std::vector<Moments> parts = moments_of_frames(files, first, count);
    for (size_t i = 0; i < parts.size(); ++i) all[i % channels].add(parts[i]);
    if (progress) progress(first + count, files.frames());
  }
  FieldStats stats{.channels = {},
                   .files = static_cast<int64_t>(files.files().size()),
                   .frames = files.frames(),
                   .height = files.shape().height,
                   .width = files.shape().width};
  const std::vector<std::string> known = files.info(stats.height, stats.width).names;
  for (size_t c = 0; c < channels; ++c)
    stats.channels.push_back(
        channel_stats(all[c], known.empty() ? std::to_string(c) : known[c], where));
  return stats;
}

void write_stats(const std::filesystem::path& dir, const std::vector<ChannelStats>& channels) {
  std::vector<ChannelStats> written = channels;
  for (ChannelStats& channel : written)
    if (channel.std == 0) channel.std = 1;
  make_dirs(dir);
  write_channels(dir / "global_means.npy", written, &ChannelStats::mean);
  write_channels(dir / "global_stds.npy", written, &ChannelStats::std);
}

}  // namespace braid::data
