// SPDX-License-Identifier: BSD-3-Clause
// Pairs of frames `step` apart: the field now and the field to predict.
#include <fmt/format.h>

#include "braid/core/error.h"
#include "data/frame_pairs.h"
#include "data/missing.h"

namespace braid::data {
namespace {

class FramesSource final : public Source {
 public:
  FramesSource(const DataOptions& options, Split split)
      : files_(options, split),
        pairs_(files_, options),
        missing_(options, files_.scaling()),
        size_(pairs_.size()) {
    if (auto limit = split_limit(options, split)) size_ = std::min(size_, *limit);
    const FieldShape& shape = files_.shape();
    height_ = options.size.empty() ? shape.height : options.size[0];
    width_ = options.size.empty() ? shape.width : options.size[1];
    check_size(shape);
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
  FieldInfo fields() const override { return files_.info(height_, width_); }

  std::string describe(int64_t index) const override {
    const FramePlace place = files_.place(pairs_.input(index));
    return fmt::format("{}, frame {}", place.file->path().string(), place.frame);
  }

 private:
  void read_pair(Access access, const Sample& out, const Scaling& scaling) const {
    read_frame(pairs_.input(access.index), out.input, scaling);
    read_frame(pairs_.target(access.index), out.target, scaling);
  }

  void read_frame(int64_t frame, const at::Tensor& out, const Scaling& scaling) const {
    const FramePlace place = files_.place(frame);
    const Slab slab{
        .frame = place.frame, .channels = files_.channels(), .rows = height_, .cols = width_};
    auto* values = out.mutable_data_ptr<float>();
    if (place.file->read(slab, values, scaling) > 0)
      missing_.settle(*place.file, slab, values, scaling);
  }

  void check_size(const FieldShape& shape) const {
    if (height_ <= shape.height && width_ <= shape.width && height_ > 0 && width_ > 0) return;
    throw DataError(
        {.what = fmt::format("data.size = [{}, {}], but {} has frames of [{}, {}]", height_, width_,
                             files_.files()[0]->path().string(), shape.height, shape.width),
         .why = "a frame is cut to the size from its top left corner",
         .fix = fmt::format("set data.size to at most [{}, {}]", shape.height, shape.width)});
  }

  FieldFiles files_;
  FramePairs pairs_;
  MissingRule missing_;
  int64_t size_, height_ = 0, width_ = 0;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Source> open_frames(const DataOptions& options, Split split) {
  return std::make_shared<FramesSource>(options, split);
}

}  // namespace braid::data
