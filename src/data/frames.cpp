// SPDX-License-Identifier: BSD-3-Clause
// Pairs of frames `step` apart: the field now and the field to predict.
#include <fmt/format.h>

#include "braid/core/error.h"
#include "data/fields.h"

namespace braid::data {
namespace {

class FramesSource final : public Source {
 public:
  FramesSource(const DataOptions& options, Split split)
      : files_(options, split), step_(options.step), size_(files_.frames()) {
    if (auto limit = split_limit(options, split)) size_ = std::min(size_, *limit);
    const FieldShape& shape = files_.shape();
    height_ = options.size.empty() ? shape.height : options.size[0];
    width_ = options.size.empty() ? shape.width : options.size[1];
    check_size(shape);
    for (const auto& file : files_.files()) check_length(*file);
    spec_.input = spec_.target = {{files_.channels(), height_, width_}, c10::kFloat};
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void read(Access access, const Sample& out) const override {
    read_pair(access, out, files_.scaling());
  }
  Scaling scaling() const override { return files_.scaling(); }
  void read_unscaled(Access access, const Sample& out) const override {
    read_pair(access, out, {});
  }

  Statistics statistics() const override { return files_.statistics(); }

  std::string describe(int64_t index) const override {
    const FramePlace place = input_of(index);
    return fmt::format("{}, frame {}", place.file->path().string(), place.frame);
  }

 private:
  // A pair never leaves its file: the last `step` frames and the first ones are folded back into
  // it.
  FramePlace input_of(int64_t index) const {
    FramePlace place = files_.place(index);
    place.frame %= place.file->shape().frames - step_;
    if (place.frame < step_) place.frame += step_;
    return place;
  }

  void read_pair(Access access, const Sample& out, const Scaling& scaling) const {
    const FramePlace place = input_of(access.index);
    Slab slab{.frame = place.frame, .channels = files_.channels(), .rows = height_, .cols = width_};
    place.file->read(slab, out.input.mutable_data_ptr<float>(), scaling);
    slab.frame += step_;
    place.file->read(slab, out.target.mutable_data_ptr<float>(), scaling);
  }

  void check_size(const FieldShape& shape) const {
    if (height_ <= shape.height && width_ <= shape.width && height_ > 0 && width_ > 0) return;
    throw DataError(
        {.what = fmt::format("data.size = [{}, {}], but {} has frames of [{}, {}]", height_, width_,
                             files_.files()[0]->path().string(), shape.height, shape.width),
         .why = "a frame is cut to the size from its top left corner",
         .fix = fmt::format("set data.size to at most [{}, {}]", shape.height, shape.width)});
  }

  void check_length(const FieldFile& file) const {
    if (file.shape().frames >= 3 * step_) return;
    throw DataError(
        {.what = fmt::format("{} has {} frames, too few for data.step = {}", file.path().string(),
                             file.shape().frames, step_),
         .why = "a file needs at least 3 x step frames: none of the first `step` is an input",
         .fix = fmt::format("set data.step to at most {}, or take the file away",
                            file.shape().frames / 3)});
  }

  FieldFiles files_;
  int64_t step_, size_, height_ = 0, width_ = 0;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Source> open_frames(const DataOptions& options, Split split) {
  return std::make_shared<FramesSource>(options, split);
}

}  // namespace braid::data
