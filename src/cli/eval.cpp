// SPDX-License-Identifier: BSD-3-Clause
// braid eval RUN: loss and metrics of a saved model on one of its data sets.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "braid/train/evaluate.h"
#include "braid/train/session.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

struct EvalArguments {
  std::string run;
  std::string checkpoint = "newest";
  std::string split = "valid";
  std::vector<std::string> sets;
  bool json = false;
};

data::Split split_called(const std::string& name) {
  return name == "train"  ? data::Split::train
         : name == "test" ? data::Split::test
                          : data::Split::valid;
}

ValidRecord evaluate_saved(const SavedModel& saved, data::Split split) {
  const train::RunOptions& options = saved.options;
  const std::unique_ptr<nn::Model> model = load_saved(saved);
  const auto source = data::open_source(options.data, split, static_cast<uint64_t>(options.seed));
  train::check_shapes(options, source->spec());
  const c10::Device device = train::device_of(options.train);
  data::Loader loader(source, train::evaluation_loader(options, device));
  const train::Scoring scoring = train::scoring_of(options, *source);
  if (!scoring.assumed.empty()) fmt::print(stderr, "{}\n", scoring.assumed);
  return train::evaluate(*model, loader, scoring);
}

Exit eval_command(const EvalArguments& arguments) {
  const SavedModel saved = find_saved(arguments.run, arguments.checkpoint, arguments.sets);
  const ValidRecord record = evaluate_saved(saved, split_called(arguments.split));
  if (arguments.json) {
    const nlohmann::json result = {{"checkpoint", saved.checkpoint}, {"split", arguments.split},
                                   {"samples", record.samples},      {"loss", record.loss},
                                   {"seconds", record.seconds},      {"metrics", record.metrics},
                                   {"statistics", saved.statistics}};
    fmt::print("{}\n", result.dump());
    return Exit::ok;
  }
  fmt::print("{} on {} ({} samples)\n  {:<24} {:.6g}\n", saved.checkpoint, arguments.split,
             record.samples, "loss", record.loss);
  for (const auto& [name, value] : record.metrics) fmt::print("  {:<24} {:.6g}\n", name, value);
  return Exit::ok;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "compute loss and metrics of a saved model");
  command->add_option("run", arguments->run, "run folder, or one of its checkpoint folders")
      ->required()
      ->type_name("RUN");
  command->add_option("--checkpoint", arguments->checkpoint,
                      "newest, best, or a folder name such as step-00000100 (default: newest)");
  command
      ->add_option("--split", arguments->split,
                   "data to evaluate: train, valid or test (default: valid)")
      ->check(CLI::IsMember({"train", "valid", "test"}));
  add_sets(*command, arguments->sets);
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return eval_command(*arguments); }; });
}

}  // namespace braid::cli
