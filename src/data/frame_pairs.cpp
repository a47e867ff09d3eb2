// SPDX-License-Identifier: BSD-3-Clause
#include "data/frame_pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "braid/core/error.h"
#include "data/time_axis.h"

namespace braid::data {
namespace {

struct FrameTime {
  double seconds = std::numeric_limits<double>::quiet_NaN();
  int calendar = -1;  // times of different calendars are not compared
};

std::vector<FrameTime> times_of(const FieldFiles& files) {
  std::vector<FrameTime> times;
  for (const auto& file : files.files()) {
    const TimeAxis& axis = file->times();
    for (size_t t = 0; t < static_cast<size_t>(file->shape().frames); ++t)
      times.push_back(t < axis.seconds.size()
                          ? FrameTime{axis.seconds[t], static_cast<int>(*axis.kind)}
                          : FrameTime{});
  }
  return times;
}

double step_of(const std::vector<FrameTime>& times) {
  std::vector<double> seconds;
  for (size_t i = 0; i < times.size(); ++i) {
    if (i > 0 && times[i].calendar != times[i - 1].calendar)
      seconds.push_back(std::numeric_limits<double>::quiet_NaN());
    seconds.push_back(times[i].seconds);
  }
  return usual_step(seconds);
}

bool has_times(const FieldFile& file) { return !file.times().seconds.empty(); }

std::string frames_text(int64_t count) {
  return fmt::format("{} frame{}", count, count == 1 ? "" : "s");
}

// Without times a file stands alone: it must be long enough.
void check_alone(const FieldFile& file, int64_t step) {
  const int64_t frames = file.shape().frames;
  if (frames > step || has_times(file)) return;
  throw DataError(
      {.what = fmt::format("{} has {}, too few for data.step = {}", file.path().string(),
                           frames_text(frames), step),
       .why = "the file has no time axis, and only times tell which frame of another file follows",
       .fix = frames > 1
                  ? fmt::format("set data.step to at most {}, or take the file away", frames - 1)
                  : "write the files with a time coordinate (units such as \"hours since "
                    "1990-01-01\"), or join them: cdo mergetime in*.nc out.nc"});
}

int64_t longest_run(const std::vector<bool>& next_follows) {
  int64_t longest = 1, run = 1;
  for (const bool follows : next_follows) {
    run = follows ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  return longest;
}

}  // namespace

std::vector<bool> frames_followed(const FieldFiles& files) {
  const std::vector<FrameTime> times = times_of(files);
  const double step = step_of(times);
  std::vector<bool> followed(times.size(), false);
  size_t at = 0;
  for (const auto& file : files.files()) {
    const bool timed = has_times(*file);
    for (int64_t t = 0; t < file->shape().frames; ++t, ++at) {
      if (at + 1 == times.size()) continue;
      const bool inside = t + 1 < file->shape().frames;
      if (inside && !timed)
        followed[at] = true;
      else
        followed[at] = times[at].calendar == times[at + 1].calendar &&
                       is_next(times[at].seconds, times[at + 1].seconds, step);
    }
  }
  return followed;
}

FramePairs::FramePairs(const FieldFiles& files, const DataOptions& options)
    : files_(files), step_(options.step), reference_(options.pairs == Pairs::reference) {
  const std::vector<bool> followed = frames_followed(files);
  if (reference_)
    check_reference(followed);
  else
    take_all(followed);
}

void FramePairs::take_all(const std::vector<bool>& next_follows) {
  for (const auto& file : files_.files()) check_alone(*file, step_);
  int64_t run = 0;  // frames that follow each other, up to this one
  for (int64_t frame = 0; frame < files_.frames(); ++frame) {
    run = frame > 0 && next_follows[static_cast<size_t>(frame - 1)] ? run + 1 : 1;
    if (run > step_) inputs_.push_back(frame - step_);
  }
  if (!inputs_.empty()) return;
  const int64_t longest = longest_run(next_follows);
  throw DataError(
      {.what = fmt::format("no two frames of {} are data.step = {} apart",
                           files_.files()[0]->path().parent_path().string(), step_),
       .why = fmt::format("{} in {} file{}, and by their times at most {} follow each other",
                          frames_text(files_.frames()), files_.files().size(),
                          files_.files().size() == 1 ? "" : "s", longest),
       .fix = longest > 1 ? fmt::format("set data.step to at most {}", longest - 1)
                          : "give files whose frames follow each other; braid data check DIR "
                            "tells where the times have gaps"});
}

// The rule of the course counts frames, so it cannot leave out those before a gap.
void FramePairs::check_reference(const std::vector<bool>& next_follows) const {
  int64_t first = 0;
  for (const auto& file : files_.files()) {
    const int64_t frames = file->shape().frames;
    if (frames < 3 * step_)
      throw DataError(
          {.what = fmt::format("{} has {}, too few for data.step = {}", file->path().string(),
                               frames_text(frames), step_),
           .why = "data.pairs = reference needs 3 x step frames per file: none of the first `step` "
                  "is an input",
           .fix = frames >= 3 ? fmt::format("set data.step to at most {}, or set data.pairs to all",
                                            frames / 3)
                              : "set data.pairs to all, or take the file away"});
    for (int64_t t = 0; t + 1 < frames; ++t)
      if (!next_follows[static_cast<size_t>(first + t)])
        throw DataError(
            {.what = fmt::format("{} has a gap in time after frame {}", file->path().string(), t),
             .why = "data.pairs = reference pairs frames by their number alone",
             .fix = "set data.pairs to all, which leaves such pairs out"});
    first += frames;
  }
}

int64_t FramePairs::size() const {
  return reference_ ? files_.frames() : static_cast<int64_t>(inputs_.size());
}

// data.pairs = reference: a pair never leaves its file. The last `step` frames and the first ones
// are folded back into it, as the loader of the course does.
int64_t FramePairs::input(int64_t index) const {
  if (!reference_) return inputs_[static_cast<size_t>(index)];
  const FramePlace place = files_.place(index);
  const int64_t first = index - place.frame;
  int64_t frame = place.frame % (place.file->shape().frames - step_);
  if (frame < step_) frame += step_;
  return first + frame;
}

}  // namespace braid::data
