// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/kept_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Values = std::vector<float>;

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

const Values* kept_values(const data::Statistics& statistics, const char* key) {
  const auto found = statistics.find(key);
  return found == statistics.end() ? nullptr : &found->second;
}

// "2 of 3 channels differ from the checkpoint, most in channel 1: 5.25 instead of 5"
std::string difference_of_values(const Values& mine, const Values& kept) {
  if (mine.size() != kept.size())
    return fmt::format("{} values, and the checkpoint has {}", mine.size(), kept.size());
  size_t count = 0, most = 0;
  double largest = -1;
  for (size_t i = 0; i < mine.size(); ++i) {
    if (std::bit_cast<uint32_t>(mine[i]) == std::bit_cast<uint32_t>(kept[i])) continue;
    ++count;
    const double apart = std::abs(static_cast<double>(mine[i]) - static_cast<double>(kept[i]));
    if (largest >= 0 && !(apart > largest)) continue;
    largest = apart;
    most = i;
  }
  return fmt::format(
      "{} of {} channels differ{} from the checkpoint, most in channel {}: {} "
      "instead of {}",
      count, mine.size(), count == 1 ? "s" : "", most, mine[most], kept[most]);
}

// A path may be a pattern; what stands before its first wildcard can be looked for.
bool is_there(const std::string& path) {
  const size_t wild = path.find_first_of("*?[");
  std::error_code ignored;
  if (wild == std::string::npos) return fs::exists(path, ignored);
  const fs::path folder = fs::path(path.substr(0, wild)).parent_path();
  return folder.empty() || fs::exists(folder, ignored);
}

struct DataPath {
  const char* key;
  std::string data::DataOptions::* path;
};

std::vector<DataPath> data_paths() {
  std::vector<DataPath> all = {{"data.train", &data::DataOptions::train},
                               {"data.valid", &data::DataOptions::valid},
                               {"data.test", &data::DataOptions::test}};
  for (const data::StatisticFile& which : data::statistic_files())
    all.push_back({which.key, which.file});
  return all;
}

// A run that was copied to another machine may have its data beside it instead.
void resolve_paths(RunOptions& options, const std::string& folder,
                   const std::set<std::string>& given, std::vector<std::string>& lines) {
  const fs::path here = fs::current_path();
  if (folder.empty() || fs::path(folder) == here) return;
  for (const DataPath& one : data_paths()) {
    std::string& path = options.data.*one.path;
    if (path.empty() || fs::path(path).is_absolute() || given.contains(one.key)) continue;
    const std::string there = (fs::path(folder) / path).lexically_normal().string();
    if (!is_there(there) && is_there(path)) {
      lines.push_back(fmt::format("{}: {} does not exist; {} is used", one.key, there,
                                  (here / path).lexically_normal().string()));
      continue;
    }
    path = there;
  }
}

// The statistics of a file that may be gone or unreadable: then there is nothing to compare.
std::optional<Values> values_on_disk(const data::DataOptions& options,
                                     const data::StatisticFile& which) {
  if ((options.*which.file).empty()) return {};
  try {
    return data::read_statistic(options, which);
  } catch (const DataError&) {
    return {};
  }
}

void use_statistic(data::DataOptions& options, const data::StatisticFile& which, const Values& kept,
                   bool given, std::vector<std::string>& lines) {
  const std::string& file = options.*which.file;
  const std::optional<Values> mine = values_on_disk(options, which);
  const bool differs = mine && !same_bits(*mine, kept);
  if (given)
    lines.push_back(fmt::format("{} = {} (--set) replaces the statistics of the checkpoint{}",
                                which.key, file.empty() ? "\"\"" : file,
                                differs ? ": " + difference_of_values(*mine, kept) : ""));
  else if (differs)
    lines.push_back(fmt::format("{} ({}): {}; the checkpoint's are used", which.key, file,
                                difference_of_values(*mine, kept)));
}

// JSON has no word for NaN and infinities, and its null is none of a number.
Values values_from(const json& numbers) {
  Values values;
  for (const json& number : numbers)
    values.push_back(number.is_null() ? std::nanf("") : number.get<float>());
  return values;
}

// Files of statistics that a checkpoint without data.json leaves to be read as they are.
std::vector<std::string> named_files(const data::DataOptions& options) {
  std::vector<std::string> files;
  for (const data::StatisticFile& which : data::statistic_files())
    if (const std::string& file = options.*which.file; !file.empty())
      files.push_back(fmt::format("{} = {}", which.key, file));
  return files;
}

}  // namespace

std::string to_json(const KeptData& kept) {
  const json content = {{"folder", kept.folder}, {"statistics", kept.statistics}};
  return content.dump(1) + "\n";
}

std::optional<KeptData> kept_data(const checkpoint::Reader& reader) {
  const std::string text = reader.file(kept_data_name);
  if (text.empty()) return {};
  try {
    const json content = json::parse(text);
    KeptData kept{.folder = content.at("folder").get<std::string>(), .statistics = {}};
    for (const auto& [key, numbers] : content.at("statistics").items())
      kept.statistics[key] = values_from(numbers);
    return kept;
  } catch (const json::exception& wrong) {
    throw StorageError(
        {.what = fmt::format("{}/{} cannot be read", reader.dir().string(), kept_data_name),
         .why = wrong.what(),
         .fix = "use another checkpoint of the run"});
  }
}

std::set<std::string> kept_keys() {
  std::set<std::string> keys;
  for (const DataPath& one : data_paths()) keys.insert(one.key);
  return keys;
}

std::vector<std::string> differences(const data::DataOptions& options, const data::Statistics& mine,
                                     const data::Statistics& kept) {
  std::vector<std::string> lines;
  for (const data::StatisticFile& which : data::statistic_files()) {
    const Values *here = kept_values(mine, which.key), *there = kept_values(kept, which.key);
    const std::string& file = options.*which.file;
    if (here != nullptr && there != nullptr && !same_bits(*here, *there))
      lines.push_back(
          fmt::format("{} ({}): {}", which.key, file, difference_of_values(*here, *there)));
    else if (here != nullptr && there == nullptr)
      lines.push_back(
          fmt::format("{} ({}): the checkpoint was trained without it", which.key, file));
    else if (here == nullptr && there != nullptr)
      lines.push_back(fmt::format("{} is not set: the checkpoint was trained with it", which.key));
  }
  return lines;
}

std::vector<std::string> use_kept(RunOptions& options, const std::optional<KeptData>& kept,
                                  const std::set<std::string>& given) {
  std::vector<std::string> lines;
  if (!kept) {
    if (const std::vector<std::string> files = named_files(options.data); !files.empty())
      lines.push_back(
          fmt::format("the checkpoint holds no statistics (an older braid saved it, or it was made "
                      "of weights alone): "
                      "{} are read as they are now",
                      fmt::join(files, " and ")));
    return lines;
  }
  resolve_paths(options, kept->folder, given, lines);
  for (const data::StatisticFile& which : data::statistic_files()) {
    const Values* values = kept_values(kept->statistics, which.key);
    if (values == nullptr) continue;
    use_statistic(options.data, which, *values, given.contains(which.key), lines);
    if (!given.contains(which.key)) options.data.statistics[which.key] = *values;
  }
  return lines;
}

}  // namespace braid::train
