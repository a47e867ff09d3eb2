// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "braid/checkpoint/store.h"
#include "braid/core/printable.h"
#include "braid/launch/environment.h"
#include "braid/train/kept_data.h"
#include "braid/train/session.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

namespace fs = std::filesystem;

DataError no_checkpoint(const std::string& run) {
  return DataError(
      {.what = fs::exists(run) ? fmt::format("{} holds no whole checkpoint", run)
                               : fmt::format("there is no folder {}", run),
       .why = "a saved model is a folder with manifest.json, or a run folder with checkpoints/",
       .fix = "train first: braid train CONFIG"});
}

// By the metric that the run itself was told to rate by.
fs::path best_checkpoint(const fs::path& run) {
  const auto options = train::load_run((run / "config.yaml").string()).checkpoint;
  const fs::path best = checkpoint::Store(run / "checkpoints", options).best();
  if (best.empty())
    throw DataError({.what = fmt::format("{} has no best checkpoint", run.string()),
                     .why = fmt::format("none was saved with a validated {}", options.metric),
                     .fix = "take the newest: --checkpoint newest"});
  return best;
}

fs::path named_checkpoint(const fs::path& run, const std::string& name) {
  if (fs::is_directory(run / "checkpoints" / name)) return run / "checkpoints" / name;
  std::vector<std::string> there;
  for (const fs::path& dir : checkpoint::Store(run / "checkpoints").list())
    there.push_back(dir.filename().string());
  throw DataError({.what = fmt::format("{} has no checkpoint {}", run.string(), name),
                   .why = fmt::format("it holds {}", fmt::join(there, ", ")),
                   .fix = "--checkpoint newest, best or one of these"});
}

fs::path choose_checkpoint(const fs::path& run, const std::string& which) {
  if (fs::exists(run / "manifest.json")) return run;
  if (!fs::is_directory(run / "checkpoints")) throw no_checkpoint(run.string());
  if (which == "best") return best_checkpoint(run);
  if (which != "newest") return named_checkpoint(run, which);
  const auto found = checkpoint::Store(run / "checkpoints").newest();
  if (!found) throw no_checkpoint(run.string());
  for (const std::string& skipped : found->skipped)
    fmt::print(stderr, "braid: checkpoint skipped: {}\n", printable(skipped));
  return found->dir;
}

// Of all that --set has changed; a whole section counts as each of its paths.
std::set<std::string> keys_of(const std::vector<std::string>& sets) {
  std::set<std::string> keys;
  for (const std::string& set : sets) {
    const std::string key = set.substr(0, set.find_first_of("= "));
    keys.insert(key);
    if (key == "data") keys.merge(train::kept_keys());
  }
  return keys;
}

std::string statistics_from(const data::DataOptions& options) {
  bool files = false;
  for (const data::StatisticFile& which : data::statistic_files())
    files = files || (!(options.*which.file).empty() && !options.statistics.contains(which.key));
  return files ? "files" : options.statistics.empty() ? "none" : "checkpoint";
}

}  // namespace

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command
      .add_option(
          "--set", sets,
          "change settings of the config, e.g. --set train.steps=10 run.name=a (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_config(CLI::App& command, ConfigArguments& arguments) {
  command
      .add_option("config", arguments.spec, "YAML file, or file:name for one of the configs in it")
      ->required()
      ->type_name("CONFIG");
  add_sets(command, arguments.sets);
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "print one JSON object and nothing else");
}

SavedModel find_saved(const std::string& run, const std::string& which,
                      const std::vector<std::string>& sets) {
  SavedModel saved;
  saved.checkpoint = choose_checkpoint(run, which).string();
  saved.options = train::load_run((fs::path(saved.checkpoint) / "config.yaml").string(), sets);
  const std::set<std::string> given = keys_of(sets);
  const auto kept = train::kept_data(checkpoint::Reader(saved.checkpoint));
  for (const std::string& line : train::use_kept(saved.options, kept, given))
    fmt::print(stderr, "braid: {}\n", line);
  saved.statistics = statistics_from(saved.options.data);
  return saved;
}

std::unique_ptr<nn::Model> load_saved(const SavedModel& saved) {
  std::unique_ptr<nn::Model> model = train::build_model(saved.options);
  // What was validated: the averaged weights, where the run kept an average.
  const bool averaged = saved.options.train.ema > 0;
  const checkpoint::Snapshot snapshot = checkpoint::load(
      saved.checkpoint, averaged ? checkpoint::Parts::all : checkpoint::Parts::weights);
  train::copy_weights(*model, snapshot.state.part(averaged ? "ema" : "model"),
                      {.name = saved.checkpoint,
                       .fix = "leave out the --set that changes the model: its sizes are those of "
                              "config.yaml there"});
  return model;
}

std::function<void(int64_t, int64_t)> progress_line(const std::string& label) {
  if (!launch::environment().stderr_is_tty) return {};
  return [label](int64_t done, int64_t total) {
    fmt::print(stderr, "\r{} {}/{}{}", label, done, total, done == total ? "\n" : "");
    std::fflush(stderr);
  };
}

}  // namespace braid::cli
