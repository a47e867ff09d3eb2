// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "braid/checkpoint/store.h"
#include "braid/launch/environment.h"
#include "braid/train/session.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

namespace fs = std::filesystem;

DataError no_checkpoint(const std::string& run) {
  return DataError(
      {.what = fmt::format("{} holds no whole checkpoint", run),
       .why = "a saved model is a folder with manifest.json, or a run folder with checkpoints/",
       .fix = "train first: braid train CONFIG"});
}

fs::path choose_checkpoint(const fs::path& run, const std::string& which) {
  if (fs::exists(run / "manifest.json")) return run;
  if (!which.empty() && which != "newest" && which != "best") return run / "checkpoints" / which;
  if (!fs::is_directory(run / "checkpoints")) throw no_checkpoint(run.string());
  const checkpoint::Store store(run / "checkpoints");
  if (which == "best") {
    const fs::path best = store.best();
    if (!best.empty()) return best;
  }
  const auto found = store.newest();
  if (!found) throw no_checkpoint(run.string());
  for (const std::string& skipped : found->skipped)
    fmt::print(stderr, "braid: checkpoint skipped: {}\n", skipped);
  return found->dir;
}

}  // namespace

void add_sets(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "change a setting: --set train.steps=10 (may be repeated)")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void add_config(CLI::App& command, ConfigArguments& arguments) {
  command
      .add_option("config", arguments.spec, "YAML file, or file:name for one of its named configs")
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
  return saved;
}

std::unique_ptr<nn::Model> load_saved(const SavedModel& saved) {
  std::unique_ptr<nn::Model> model = train::build_model(saved.options);
  train::copy_weights(*model, checkpoint::load(saved.checkpoint).state.part("model"));
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
