// SPDX-License-Identifier: BSD-3-Clause
#include "data/check_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "data/time_axis.h"

namespace braid::data {
namespace {

// Neighbours in time that are not as they should be: how many, and the first of them.
struct OddTimes {
  int64_t count = 0;
  std::string file;
  int64_t frame = 0;
  double longest = 0;

  void add(const FieldFile& in, int64_t at, double passed) {
    if (count++ == 0) file = in.path().string(), frame = at;
    longest = std::max(longest, passed);
  }
  std::string place(const char* many) const {
    return count == 1 ? fmt::format("after frame {}", frame)
                      : fmt::format("after frame {}, and {} more such {}", frame, count - 1, many);
  }
};

struct TimeNeighbours {
  OddTimes doubles = {}, backwards = {}, gaps = {}, close = {};
  double step = 0;

  void look(const FieldFile& file, int64_t frame, double passed) {
    if (passed == 0)
      doubles.add(file, frame, passed);
    else if (passed < 0)
      backwards.add(file, frame, passed);
    else if (passed <= 0.5 * step)
      close.add(file, frame, passed);
    else if (passed >= 1.5 * step)
      gaps.add(file, frame, passed);
  }

  std::vector<Finding> findings() const {
    std::vector<Finding> found;
    if (doubles.count > 0)
      found.push_back({doubles.file, "the same time twice " + doubles.place("times"), true});
    if (backwards.count > 0)
      found.push_back({backwards.file, "time runs backwards " + backwards.place("places"), true});
    if (close.count > 0)
      found.push_back({close.file,
                       fmt::format("a shorter step than the usual {} {}", duration_text(step),
                                   close.place("steps")),
                       false});
    if (gaps.count > 0)
      found.push_back(
          {gaps.file,
           fmt::format("a gap in time {}; the longest is {}, the usual step {}; no pair of frames "
                       "spans a gap",
                       gaps.place("gaps"), duration_text(gaps.longest), duration_text(step)),
           false});
    return found;
  }
};

std::optional<Finding> unknown_units(const FieldFile& file) {
  const TimeAxis& times = file.times();
  if (!times.seconds.empty()) return std::nullopt;
  return Finding{file.path().string(),
                 fmt::format("its times are not understood (units \"{}\", calendar \"{}\"), so "
                             "gaps in time are not seen",
                             times.units, times.calendar),
                 false};
}

}  // namespace

bool has_time_axis(const FieldFile& file) { return !file.times().values.empty(); }

std::vector<Finding> time_findings(const std::vector<const FieldFile*>& files) {
  std::vector<Finding> found;
  std::vector<double> all;
  for (const FieldFile* file : files) {
    if (auto finding = unknown_units(*file); finding && found.empty())
      found.push_back(std::move(*finding));
    all.insert(all.end(), file->times().seconds.begin(), file->times().seconds.end());
  }
  TimeNeighbours neighbours{.step = usual_step(all)};
  const FieldFile* before = nullptr;
  for (const FieldFile* file : files) {
    const std::vector<double>& seconds = file->times().seconds;
    if (seconds.empty()) continue;
    if (before != nullptr && before->times().kind == file->times().kind)
      neighbours.look(*before, before->shape().frames - 1,
                      seconds.front() - before->times().seconds.back());
    for (size_t i = 1; i < seconds.size(); ++i)
      neighbours.look(*file, static_cast<int64_t>(i) - 1, seconds[i] - seconds[i - 1]);
    before = file;
  }
  for (Finding& finding : neighbours.findings()) found.push_back(std::move(finding));
  return found;
}

}  // namespace braid::data
