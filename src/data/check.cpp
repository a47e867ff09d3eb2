// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "braid/core/error.h"
#include "braid/data/npy.h"
#include "data/field_file.h"
#include "data/files.h"
#include "data/finite.h"
#include "data/made.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

std::optional<int64_t> year_of(const fs::path& file) {
  const std::string stem = file.stem().string();
  if (stem.size() < 4) return std::nullopt;
  const std::string last = stem.substr(stem.size() - 4);
  if (!std::ranges::all_of(last, [](char c) { return c >= '0' && c <= '9'; })) return std::nullopt;
  return std::stoll(last);
}

// Folder by folder, since each split has years of its own.
std::map<fs::path, std::vector<fs::path>> field_files_under(const fs::path& dir) {
  std::map<fs::path, std::vector<fs::path>> folders;
  std::error_code error;
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error))
    if (it->is_regular_file(error) &&
        std::ranges::count(field_endings(), it->path().extension().string()) > 0)
      folders[it->path().parent_path()].push_back(it->path());
  if (error || folders.empty())
    throw DataError({.what = error
                                 ? fmt::format("cannot list {}: {}", dir.string(), error.message())
                                 : fmt::format("no data files under {}", dir.string()),
                     .why = fmt::format("files end in {}", fmt::join(field_endings(), ", ")),
                     .fix = or_make("name a folder of data", "weather", dir)});
  for (auto& [folder, files] : folders) std::ranges::sort(files);
  return folders;
}

class Checker {
 public:
  Checker(const FieldNames& names, const Progress& progress) : names_(names), progress_(progress) {}

  CheckReport run(const fs::path& dir) {
    const auto folders = field_files_under(dir);
    for (const auto& [folder, files] : folders) total_ += static_cast<int64_t>(files.size());
    for (const auto& [folder, files] : folders) {
      check_years(folder, files);
      for (const fs::path& file : files) {
        check_file(file);
        if (progress_) progress_(++done_, total_);
      }
    }
    check_lengths();
    for (const char* name : {"global_means.npy", "global_stds.npy"})
      check_stats(dir / "stats" / name);
    return std::move(report_);
  }

 private:
  void find(const fs::path& file, std::string problem, bool fatal = true) {
    report_.findings.push_back({file.string(), std::move(problem), fatal});
  }

  void check_years(const fs::path& folder, const std::vector<fs::path>& files) {
    std::set<int64_t> years;
    for (const fs::path& file : files) {
      if (const auto year = year_of(file))
        years.insert(*year);
      else
        find(file, "its name does not end in a year", false);
    }
    if (years.empty()) return;
    for (int64_t year = *years.begin(); year < *years.rbegin(); ++year)
      if (years.count(year) == 0) find(folder, fmt::format("year {} is missing", year));
  }

  void check_file(const fs::path& path) {
    ++report_.files;
    std::error_code ignored;
    report_.bytes += static_cast<int64_t>(fs::file_size(path, ignored));
    try {
      const FieldFile file(path, names_);
      check_shape(file);
      check_values(file);
    } catch (const Error& error) {
      find(path, error.complaint().what);
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
    std::string first;
    int64_t bad = 0;
    for (int64_t t = 0; t < shape.frames; ++t) {
      file.read({.frame = t, .channels = shape.channels, .rows = shape.height, .cols = shape.width},
                frame.data());
      const int64_t at = first_not_finite(frame.data(), count);
      if (at < 0) continue;
      if (bad == 0)
        first = fmt::format("{} at frame {} channel {}", not_finite_name(frame[at]), t, at / plane);
      bad += std::ranges::count_if(frame, not_finite_bits);
    }
    if (bad > 0) find(file.path(), fmt::format("{}, {} such values in the file", first, bad));
  }

  // Leap years are longer: worth a note, not an error.
  void check_lengths() {
    if (lengths_.size() < 2) return;
    const auto most = std::ranges::max_element(
        lengths_, {}, [](const auto& entry) { return entry.second.size(); });
    for (const auto& [frames, files] : lengths_)
      for (const fs::path& file : files)
        if (frames != most->first)
          find(file, fmt::format("{} frames, most files have {}", frames, most->first), false);
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

  const FieldNames& names_;
  const Progress& progress_;
  CheckReport report_;
  int64_t done_ = 0, total_ = 0;
  std::map<int64_t, std::vector<fs::path>> lengths_;
};

}  // namespace

CheckReport check_data(const fs::path& dir, const FieldNames& names, const Progress& progress) {
  return Checker(names, progress).run(dir);
}

}  // namespace braid::data
