// SPDX-License-Identifier: BSD-3-Clause
// The files of one split, agreeing in shape, as one long sequence of frames. Internal.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "braid/data/options.h"
#include "data/field_file.h"
#include "data/files.h"

namespace braid::data {

struct FramePlace {
  const FieldFile* file = nullptr;
  int64_t frame = 0;
};

class FieldFiles {
 public:
  FieldFiles(const FileSearch& search, const FieldNames& names);  // all channels, unscaled
  FieldFiles(const DataOptions& options, Split split);
  // Both throw DataError.

  int64_t frames() const { return first_.back(); }  // of all files together
  FramePlace place(int64_t frame) const;            // of a global frame
  const std::vector<std::unique_ptr<FieldFile>>& files() const { return files_; }
  int64_t channels() const { return channels_; }  // wanted
  const FieldShape& shape() const { return files_[0]->shape(); }
  const Scaling& scaling() const { return scaling_; }
  const Statistics& statistics() const { return statistics_; }
  FieldInfo info(int64_t height, int64_t width) const;  // cut to this size and to the channels

 private:
  std::vector<std::unique_ptr<FieldFile>> files_;
  std::vector<int64_t> first_;  // global number of each file's first frame, and of the end
  int64_t channels_ = 0;
  Statistics statistics_;
  Scaling scaling_;
};

const std::string& split_path(const DataOptions& options, Split split);
std::optional<int64_t> split_limit(const DataOptions& options, Split split);
const char* split_name(Split split);
struct ChannelCount {
  int64_t wanted = 0, stored = 0;
};
// A number per channel from statistics of [1,C,1,1] or [C], cut to the wanted channels. Throws
// DataError if their length fits neither the wanted nor the stored channels.
std::vector<float> values_by_channel(const DataOptions& options, const char* key,
                                     const ChannelCount& channels);

std::shared_ptr<const Source> open_frames(const DataOptions& options, Split split);
std::shared_ptr<const Source> open_crops(const DataOptions& options, Split split, uint64_t seed);
std::shared_ptr<const Source> open_tokens(const DataOptions& options, Split split);
std::shared_ptr<const Source> open_text(const DataOptions& options, Split split);
std::shared_ptr<const Source> open_spiral(const DataOptions& options, Split split);
std::shared_ptr<const Source> open_synthetic(const DataOptions& options, Split split);

}  // namespace braid::data
