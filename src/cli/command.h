// SPDX-License-Identifier: BSD-3-Clause
// The commands of `braid`: each file adds one to the app and leaves what it does in `action`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "braid/core/error.h"
#include "braid/train/options.h"

namespace braid::cli {

using Action = std::function<Exit()>;

void add_train(CLI::App& app, Action& action);
void add_eval(CLI::App& app, Action& action);
void add_predict(CLI::App& app, Action& action);
void add_parity(CLI::App& app, Action& action);
void add_profile(CLI::App& app, Action& action);
void add_bench(CLI::App& app, Action& action);
void add_plan(CLI::App& app, Action& action);
void add_inspect(CLI::App& app, Action& action);
void add_schedule(CLI::App& app, Action& action);
void add_report(CLI::App& app, Action& action);
void add_convert(CLI::App& app, Action& action);
void add_data(CLI::App& app, Action& action);
void add_doctor(CLI::App& app, Action& action);
void add_help(CLI::App& app, Action& action);

// CONFIG and --set, as every command takes them that reads a config.
struct ConfigArguments {
  std::string spec;
  std::vector<std::string> sets;
  train::RunOptions load() const { return train::load_run(spec, sets); }
};
void add_config(CLI::App& command, ConfigArguments& arguments);
void add_sets(CLI::App& command, std::vector<std::string>& sets);
void add_json(CLI::App& command, bool& json);

// A saved model: the run folder, or one checkpoint of it.
struct SavedModel {
  train::RunOptions options;
  std::string checkpoint;  // folder
  std::string statistics;  // where those of the data come from: checkpoint, files or none
};
SavedModel find_saved(const std::string& run, const std::string& which,
                      const std::vector<std::string>& sets);
std::unique_ptr<nn::Model> load_saved(const SavedModel& saved);

// A progress line on stderr if that is a terminal: "label 12/40".
std::function<void(int64_t, int64_t)> progress_line(const std::string& label);

}  // namespace braid::cli
