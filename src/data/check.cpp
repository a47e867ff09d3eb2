// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <span>

#include "braid/core/error.h"
#include "braid/core/units.h"
#include "braid/data/npy.h"
#include "data/check_times.h"
#include "data/field_file.h"
#include "data/file_dates.h"
#include "data/files.h"
#include "data/finite.h"
#include "data/foreign.h"
#include "data/made.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

// Folder by folder, since each split has years of its own.
std::map<fs::path, std::vector<fs::path>> field_files_under(const fs::path& where) {
  std::map<fs::path, std::vector<fs::path>> folders;
  std::error_code error;
  if (fs::is_regular_file(where, error)) return {{where.parent_path(), {where}}};
  for (fs::recursive_directory_iterator it(where, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(error) &&
        std::ranges::count(field_endings(), it->path().extension().string()) > 0)
      folders[it->path().parent_path()].push_back(it->path());
  if (!error && folders.empty()) refuse_foreign(where);
  if (error || folders.empty())
    throw DataError(
        {.what = error ? fmt::format("cannot list {}: {}", where.string(), error.message())
                       : fmt::format("no data files under {}", where.string()),
         .why = fmt::format("files end in {}", fmt::join(field_endings(), ", ")),
         .fix = or_make("name a file, or a folder of HDF5 or netCDF-4 files", "weather", where)});
  for (auto& [folder, files] : folders) std::ranges::sort(files);
  return folders;
}

// Of one channel over all files: which of its values cannot be trained on.
struct BadValues {
  int64_t count = 0, files = 0, values = 0;
  fs::path file, last;  // where the first is, and the last
  int64_t frame = -1;

  std::string text(const std::string& kind, const std::string& channel) const {
    return fmt::format("{} {} value{} of {} ({:.2g} %) in {} file{}, the first in frame {}",
                       with_commas(count), kind, count == 1 ? "" : "s", channel,
                       100.0 * static_cast<double>(count) / static_cast<double>(values), files,
                       files == 1 ? "" : "s", frame);
  }
};

class Checker {
 public:
  Checker(const CheckOptions& options, const Progress& progress)
      : options_(options), progress_(progress) {}

  CheckReport run(const fs::path& where) {
    const auto folders = field_files_under(where);
    std::vector<Files> opened;
    for (const auto& [folder, files] : folders) opened.push_back(open_all(files));
    auto at = opened.begin();
    for (const auto& [folder, files] : folders) {
      check_dates(folder, files, *at);
      for (const auto& file : *at++) check_file(*file);
    }
    tell_bad_values();
    check_lengths();
    for (const char* name : {"global_means.npy", "global_stds.npy"})
      check_stats(where / "stats" / name);
    return std::move(report_);
  }

 private:
  using Files = std::vector<std::unique_ptr<FieldFile>>;

  void find(const fs::path& file, std::string problem, bool fatal = true) {
    report_.findings.push_back({file.string(), std::move(problem), fatal});
  }

  // Those that can be opened.
  Files open_all(const std::vector<fs::path>& paths) {
    Files files;
    for (const fs::path& path : paths) {
      ++report_.files;
      std::error_code ignored;
      report_.bytes += static_cast<int64_t>(fs::file_size(path, ignored));
      try {
        auto file = std::make_unique<FieldFile>(path, options_.names, KeepOpen::no);
        total_ += file->written() ? file->shape().frames : 0;
        files.push_back(std::move(file));
      } catch (const Error& error) {
        find(path, fmt::format("{}; {}", error.complaint().what, error.complaint().fix));
      }
    }
    return files;
  }

  // By the times in the files; where there are none, by the dates in their names.
  void check_dates(const fs::path& folder, const std::vector<fs::path>& paths, const Files& files) {
    std::vector<const FieldFile*> timed;
    for (const auto& file : files)
      if (has_time_axis(*file)) timed.push_back(file.get());
    for (Finding& finding : time_findings(timed)) report_.findings.push_back(std::move(finding));
    if (timed.size() == paths.size() || paths.size() == 1) return;
    std::vector<FileDate> dates;
    std::vector<fs::path> others;
    for (const fs::path& path : paths) {
      if (const auto date = date_of(path))
        dates.push_back(*date);
      else
        others.push_back(path);
    }
    if (!others.empty())
      find(others[0],
           fmt::format("its name does not end in a year, month or day{}",
                       others.size() == 1
                           ? ""
                           : fmt::format(", nor those of {} more files", others.size() - 1)),
           false);
    for (std::string& absent : absent_dates(std::move(dates))) find(folder, std::move(absent));
  }

  void check_file(const FieldFile& file) {
    check_shape(file);
    if (!file.written()) {
      find(file.path(), "no value was ever written into it: only its shape is there");
      return;
    }
    try {
      check_values(file);
    } catch (const Error& error) {
      find(file.path(), error.complaint().what);
    }
  }

  void check_shape(const FieldFile& file) {
    const FieldShape& shape = file.shape();
    const std::vector<int64_t> grid = {shape.channels, shape.height, shape.width};
    lengths_[shape.frames].push_back(file.path());
    report_.frames += shape.frames;
    if (report_.shape.empty()) report_.shape = grid;
    if (report_.shape != grid)
      find(file.path(), fmt::format("fields of [{}], those before are [{}]", fmt::join(grid, ", "),
                                    fmt::join(report_.shape, ", ")));
  }

  void check_values(const FieldFile& file) {
    const FieldShape& shape = file.shape();
    const int64_t plane = shape.height * shape.width, count = shape.channels * plane;
    std::vector<float> frame(static_cast<size_t>(count));
    for (int64_t t = 0; t < shape.frames; ++t) {
      file.read({.frame = t, .channels = shape.channels, .rows = shape.height, .cols = shape.width},
                frame.data());
      for (int64_t c = 0; c < shape.channels; ++c)
        check_plane(file, t, c, {frame.data() + c * plane, static_cast<size_t>(plane)});
      if (progress_) progress_(++done_, total_);
    }
  }

  void check_plane(const FieldFile& file, int64_t frame, int64_t channel,
                   std::span<const float> values) {
    const std::string name = file.channel_name(channel);
    BadValues &missing = missing_[name], &infinite = infinite_[name];
    for (BadValues* bad : {&missing, &infinite}) bad->values += std::ssize(values);
    if (first_not_finite(values.data(), std::ssize(values)) < 0) return;
    const auto lost = std::ranges::count_if(values, [](float x) { return std::isnan(x); });
    note(missing, lost, file.path(), frame);
    note(infinite, std::ranges::count_if(values, not_finite_bits) - lost, file.path(), frame);
  }

  static void note(BadValues& bad, int64_t count, const fs::path& file, int64_t frame) {
    if (count == 0) return;
    if (bad.count == 0) bad.file = file, bad.frame = frame;
    if (bad.count == 0 || bad.last != file) ++bad.files;
    bad.last = file;
    bad.count += count;
  }

  void tell_bad_values() {
    for (const auto& [name, bad] : missing_)
      if (bad.count > 0)
        find(bad.file, bad.text("missing", name), options_.missing == Missing::error);
    for (const auto& [name, bad] : infinite_)
      if (bad.count > 0) find(bad.file, bad.text("infinite", name));
  }

  // Leap years are longer: worth a note, not an error.
  void check_lengths() {
    if (lengths_.size() < 2) return;
    const auto most = std::ranges::max_element(
        lengths_, {}, [](const auto& entry) { return entry.second.size(); });
    for (const auto& [frames, files] : lengths_) {
      if (frames == most->first) continue;
      const std::string more =
          files.size() == 1 ? "" : fmt::format(", as have {} more files", files.size() - 1);
      find(files[0],
           fmt::format("{} frame{}{}, most files have {}", frames, frames == 1 ? "" : "s", more,
                       most->first),
           false);
    }
  }

  void check_stats(const fs::path& file) {
    if (!fs::exists(file)) return;
    try {
      const at::Tensor values = read_npy(file).to(c10::kFloat).reshape({-1});
      if (!report_.shape.empty() && values.numel() != report_.shape[0])
        find(file, fmt::format("{} values for {} channels", values.numel(), report_.shape[0]));
      const int64_t at = first_not_finite(values.const_data_ptr<float>(), values.numel());
      if (at >= 0)
        find(file, fmt::format("{} at channel {}",
                               not_finite_name(values.const_data_ptr<float>()[at]), at));
    } catch (const Error& error) {
      find(file, error.complaint().what);
    }
  }

  const CheckOptions& options_;
  const Progress& progress_;
  CheckReport report_;
  int64_t done_ = 0, total_ = 0;                         // frames
  std::map<std::string, BadValues> missing_, infinite_;  // by channel
  std::map<int64_t, std::vector<fs::path>> lengths_;
};

}  // namespace

CheckReport check_data(const fs::path& where, const CheckOptions& options,
                       const Progress& progress) {
  return Checker(options, progress).run(where);
}

}  // namespace braid::data
