// SPDX-License-Identifier: BSD-3-Clause
// Super-resolution pairs: a fine field (a whole slice, or a random square of it) and the same field
// made coarser.
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/core/rng.h"
#include "data/fields.h"
#include "data/missing.h"
#include "data/reduce.h"

namespace braid::data {
namespace {

class CropsSource final : public Source {
 public:
  CropsSource(const DataOptions& options, Split split, uint64_t seed)
      : files_(options, split),
        missing_(options, files_.scaling()),
        options_(options),
        crop_key_(random_key(seed, "crop")),
        noise_key_(random_key(seed, "noise")) {
    const int64_t scale = options.scale;
    slice_height_ =
        files_.shape().height / scale * scale;  // 721 rows: the last, a pole, is dropped
    slice_width_ = files_.shape().width / scale * scale;
    whole_ = options.size.empty();
    height_ = whole_ ? slice_height_ : options.size[0];
    width_ = whole_ ? slice_width_ : options.size.back();
    check_crop();
    size_ = files_.frames() * (whole_ ? 1 : options.patches);
    if (auto limit = split_limit(options, split)) size_ = std::min(size_, *limit);
    options_.statistics = files_.statistics();
    if (options.reduce == "noisy_uniform") read_noise_level();
    spec_.input = {{files_.channels(), height_ / scale, width_ / scale}, c10::kFloat};
    spec_.target = {{files_.channels(), height_, width_}, c10::kFloat};
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void read(Access access, const Sample& out) const override {
    const FramePlace place = files_.place(slice_of(access.index));
    Slab slab{.frame = place.frame, .channels = files_.channels(), .rows = height_, .cols = width_};
    if (!whole_) {
      const RandomKey key = crop_key_.with(static_cast<uint64_t>(access.epoch));
      const auto draw = static_cast<uint64_t>(access.index) * 2;
      slab.row = random_below(key, draw, slice_height_ - height_ + 1);
      slab.col = random_below(key, draw + 1, slice_width_ - width_ + 1);
    }
    float* fine = out.target.mutable_data_ptr<float>();
    if (place.file->read(slab, fine, files_.scaling()) > 0)
      missing_.settle(*place.file, slab, fine, files_.scaling());
    make_coarse(access, fine, out.input.mutable_data_ptr<float>());
  }

  Statistics statistics() const override { return files_.statistics(); }

  // Crops lie at a new place each time.
  FieldInfo fields() const override {
    FieldInfo info = files_.info(height_, width_);
    if (!whole_) info.latitudes.clear(), info.longitudes.clear();
    return info;
  }

  std::string describe(int64_t index) const override {
    const FramePlace place = files_.place(slice_of(index));
    const std::string text = fmt::format("{}, frame {}", place.file->path().string(), place.frame);
    return whole_ ? text : fmt::format("{}, crop {}", text, index % options_.patches);
  }

 private:
  int64_t slice_of(int64_t index) const { return whole_ ? index : index / options_.patches; }

  void make_coarse(Access access, const float* fine, float* coarse) const {
    const Plane plane{height_, width_, options_.scale};
    const int64_t points = height_ / options_.scale * (width_ / options_.scale);
    for (int64_t c = 0; c < files_.channels(); ++c) {
      const float* from = fine + c * height_ * width_;
      float* to = coarse + c * points;
      if (options_.reduce == "bicubic")
        reduce_bicubic(from, plane, to);
      else
        reduce_uniform(from, plane, to);
      if (!noise_.empty()) add_noise(access, c, to, points);
    }
  }

  void add_noise(Access access, int64_t channel, float* values, int64_t count) const {
    const RandomKey key = noise_key_.with(static_cast<uint64_t>(access.epoch))
                              .with(static_cast<uint64_t>(access.index));
    for (int64_t i = 0; i < count; ++i)
      values[i] += static_cast<float>(
          noise_[channel] * random_normal(key, static_cast<uint64_t>(channel * count + i)));
  }

  // In the units of the sample: 1 standard deviation where it is normalised.
  void read_noise_level() {
    if (options_.noise_ratio == 0) return;
    if (!files_.scaling().mean.empty()) {
      noise_.assign(static_cast<size_t>(files_.channels()), options_.noise_ratio);
      return;
    }
    if (options_.stds.empty())
      throw ConfigError(
          {.what = "data.reduce = noisy_uniform without data.stds",
           .why = "the noise is data.noise_ratio times the standard deviation of a channel",
           .fix = "set data.stds to a .npy file with one value a channel"});
    const ChannelCount channels = {.wanted = files_.channels(), .stored = files_.shape().channels};
    for (const float std : values_by_channel(options_, "data.stds", channels))
      noise_.push_back(options_.noise_ratio * std);
  }

  void check_crop() const {
    const std::string file = files_.files()[0]->path().string();
    if (height_ > slice_height_ || width_ > slice_width_ || height_ <= 0 || width_ <= 0)
      throw DataError(
          {.what = fmt::format("a crop of [{}, {}] from slices of [{}, {}] in {}", height_, width_,
                               slice_height_, slice_width_, file),
           .why = "a crop lies inside its slice, which is cut to a multiple of data.scale",
           .fix =
               fmt::format("set data.size to at most {}", std::min(slice_height_, slice_width_))});
    if (height_ % options_.scale != 0 || width_ % options_.scale != 0)
      throw ConfigError(
          {.what = fmt::format("data.size = {} is no multiple of data.scale = {}", height_,
                               options_.scale),
           .why = "the input has size / scale points a side",
           .fix = fmt::format("set data.size to {}", height_ / options_.scale * options_.scale)});
  }

  FieldFiles files_;
  MissingRule missing_;
  DataOptions options_;
  RandomKey crop_key_, noise_key_;
  int64_t slice_height_ = 0, slice_width_ = 0, height_ = 0, width_ = 0, size_ = 0;
  bool whole_ = false;
  std::vector<double> noise_;  // standard deviation a channel; empty: none
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Source> open_crops(const DataOptions& options, Split split, uint64_t seed) {
  return std::make_shared<CropsSource>(options, split, seed);
}

}  // namespace braid::data
