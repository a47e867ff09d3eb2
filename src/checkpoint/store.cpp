// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_file.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* weights_name = "model.safetensors";
constexpr const char* config_name = "config.yaml";
constexpr std::string_view model_prefix = "model/";

std::string folder_name(int64_t step) { return fmt::format("step-{:08}", step); }

std::string shard_name(int64_t rank, int64_t world) {
  return fmt::format("state-{:05}-of-{:05}.safetensors", rank, world);
}

// The step of "step-00001200"; -1 for any other name, "step-00001200.tmp-77" among them.
int64_t step_of(const fs::path& dir) {
  const std::string name = dir.filename().string();
  if (!name.starts_with("step-") || name.size() < 13 || name.size() > 23) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::stoll(name.substr(5));
}

void remove_quietly(const fs::path& dir) {
  std::error_code ignored;
  fs::remove_all(dir, ignored);
}

// What a killed process left behind.
void remove_stale(const fs::path& dir) {
  std::error_code error;
  std::vector<fs::path> stale;
  for (const auto& item : fs::directory_iterator(dir, error)) {
    const std::string name = item.path().filename().string();
    if (name.starts_with("step-") && name.find(".tmp-") != std::string::npos)
      stale.push_back(item.path());
  }
  for (const fs::path& path : stale) remove_quietly(path);
}

FileRecord write_bytes(const fs::path& file, std::string_view bytes) {
  FileWriter out(file, static_cast<int64_t>(bytes.size()));
  out.write(bytes.data(), bytes.size());
  return out.finish();
}

void write_folder(const fs::path& dir, const Snapshot& snapshot) {
  make_dirs(dir);
  Tensors model, rest;
  for (const auto& [name, tensor] : snapshot.state.tensors) {
    if (name.starts_with(model_prefix))
      model.emplace(name.substr(model_prefix.size()), tensor);
    else
      rest.emplace(name, tensor);
  }
  Manifest manifest{.step = snapshot.step,
                    .world = 1,
                    .weights = weights_name,
                    .shards = {{0, shard_name(0, 1)}},
                    .files = {},
                    .metrics = snapshot.metrics,
                    .values = snapshot.state.values};
  manifest.files[weights_name] = write_tensors(dir / weights_name, model, {{"format", "pt"}});
  const std::string& shard = manifest.shards.front().file;
  manifest.files[shard] = write_tensors(dir / shard, rest, {});
  manifest.files[config_name] = write_bytes(dir / config_name, snapshot.config);
  write_bytes(dir / manifest_name, to_json(manifest));
  sync_dir(dir);
}

// Moves the whole new folder to its name. A folder of the same step is exchanged in one stroke
// where the file system can.
void put_in_place(const fs::path& temporary, const fs::path& target) {
  if (fs::exists(target)) {
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
      sync_dir(target.parent_path());
      remove_quietly(temporary);
      return;
    }
    const fs::path old = temporary.string() + "-old";
    rename_durably(target, old);
    rename_durably(temporary, target);
    remove_quietly(old);
    return;
  }
  rename_durably(temporary, target);
}

Tensors read_checked(const fs::path& dir, const std::string& name, const Manifest& manifest) {
  const auto record = manifest.files.find(name);
  if (record == manifest.files.end())
    throw broken_checkpoint(dir, fmt::format("{} does not list {}", manifest_name, name));
  FileReader in(dir / name);
  SafetensorsFile file = read_tensors(in);
  if (in.record() != record->second)
    throw broken_checkpoint(dir, fmt::format("{} differs from what was saved (hash {}, saved {})",
                                             name, in.record().xxh3, record->second.xxh3));
  return std::move(file.tensors);
}

std::string read_config(const fs::path& dir, const Manifest& manifest) {
  const auto record = manifest.files.find(config_name);
  if (record == manifest.files.end()) return {};
  std::string text = read_text(dir / config_name);
  if (xxh3_of(text) != record->second.xxh3)
    throw broken_checkpoint(dir, fmt::format("{} differs from what was saved", config_name));
  return text;
}

// One checkpoint in the eyes of prune() and best().
struct Rated {
  fs::path dir;
  double metric = 0;
};

// The ones that look whole (sizes fit) and have a finite metric, best first; equal ones in the
// order of their steps.
std::vector<Rated> rated(const std::vector<fs::path>& whole, const CheckpointOptions& options) {
  std::vector<Rated> result;
  for (const fs::path& dir : whole) {
    const auto metrics = read_manifest(dir).metrics;
    const auto metric = metrics.find(options.metric);
    if (metric != metrics.end() && std::isfinite(metric->second))
      result.push_back({dir, metric->second});
  }
  std::stable_sort(result.begin(), result.end(), [&](const Rated& a, const Rated& b) {
    return options.highest ? a.metric > b.metric : a.metric < b.metric;
  });
  return result;
}

std::vector<fs::path> whole_by_size(const std::vector<fs::path>& all) {
  std::vector<fs::path> whole;
  for (const fs::path& dir : all) {
    try {
      check_sizes(read_manifest(dir), dir);
      whole.push_back(dir);
    } catch (const StorageError&) {
      // A broken one is neither counted nor removed: newest() will name it.
    }
  }
  return whole;
}

}  // namespace

void describe(Fields& fields, CheckpointOptions& o) {
  fields.field("every", o.every, "steps between checkpoints; 0: at the end of each epoch",
               {.at_least = 0});
  fields.field("keep", o.keep, "newest checkpoints that are kept", {.at_least = 1});
  fields.field("best", o.best, "best checkpoints that are kept beside them", {.at_least = 0});
  fields.field("metric", o.metric, "validation metric that says which is best");
  fields.field("highest", o.highest, "a higher metric is better");
  fields.field("at_end", o.at_end, "save after the last step");
}

Store::Store(fs::path dir, CheckpointOptions options)
    : dir_(std::move(dir)), options_(std::move(options)) {}

fs::path Store::save(const Snapshot& snapshot) {
  make_dirs(dir_);
  remove_stale(dir_);
  const fs::path target = dir_ / folder_name(snapshot.step);
  const fs::path temporary = target.string() + fmt::format(".tmp-{}", ::getpid());
  try {
    write_folder(temporary, snapshot);
    put_in_place(temporary, target);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  prune(target);
  return target;
}

void Store::prune(const fs::path& just_saved) const {
  const std::vector<fs::path> whole = whole_by_size(list());
  std::set<fs::path> held = {just_saved};
  const auto newest = std::min<size_t>(whole.size(), static_cast<size_t>(options_.keep));
  held.insert(whole.end() - static_cast<std::ptrdiff_t>(newest), whole.end());
  const std::vector<Rated> ranking = rated(whole, options_);
  for (size_t i = 0; i < ranking.size() && i < static_cast<size_t>(options_.best); ++i)
    held.insert(ranking[i].dir);
  for (const fs::path& dir : whole)
    if (!held.contains(dir)) remove_quietly(dir);
}

std::vector<fs::path> Store::list() const {
  std::vector<fs::path> result;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(dir_, error))
    if (step_of(item.path()) >= 0 && item.is_directory(error)) result.push_back(item.path());
  std::sort(result.begin(), result.end(),
            [](const fs::path& a, const fs::path& b) { return step_of(a) < step_of(b); });
  return result;
}

fs::path Store::best() const {
  const std::vector<Rated> ranking = rated(whole_by_size(list()), options_);
  return ranking.empty() ? fs::path() : ranking.front().dir;
}

std::optional<Found> Store::newest() const {
  const std::vector<fs::path> all = list();
  Found found;
  for (auto dir = all.rbegin(); dir != all.rend(); ++dir) {
    try {
      found.snapshot = load(*dir);
      found.dir = *dir;
      return found;
    } catch (const StorageError& error) {
      found.skipped.push_back(
          fmt::format("{}: {}", dir->filename().string(), error.complaint().why));
    }
  }
  if (all.empty()) return std::nullopt;
  throw StorageError({.what = fmt::format("none of the {} checkpoints in {} can be used",
                                          all.size(), dir_.string()),
                      .why = fmt::format("{}", fmt::join(found.skipped, "; ")),
                      .fix = "restore one from a copy, or start anew without --resume"});
}

Snapshot load(const fs::path& checkpoint, Parts parts) {
  const Manifest manifest = read_manifest(checkpoint);
  check_sizes(manifest, checkpoint);
  if (manifest.world != 1 || manifest.shards.size() != 1)
    throw broken_checkpoint(
        checkpoint,
        fmt::format("{} ranks wrote it, and this version trains in one process", manifest.world));
  Snapshot snapshot{.step = manifest.step,
                    .state = {},
                    .metrics = manifest.metrics,
                    .config = read_config(checkpoint, manifest)};
  State model;
  model.tensors = read_checked(checkpoint, manifest.weights, manifest);
  snapshot.state.put("model", model);
  if (parts == Parts::weights) return snapshot;
  snapshot.state.tensors.merge(read_checked(checkpoint, manifest.shards.front().file, manifest));
  snapshot.state.values = manifest.values;
  return snapshot;
}

}  // namespace braid::checkpoint
