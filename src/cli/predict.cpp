// SPDX-License-Identifier: BSD-3-Clause
// braid predict RUN: a forecast, a finer picture or a text from a saved model.
#include "cli/predict.h"
#include "cli/usage.h"

namespace braid::cli {
namespace {

Exit predict_command(const PredictArguments& arguments) {
  const SavedModel saved = find_saved(arguments.run, arguments.checkpoint, arguments.sets);
  const std::unique_ptr<nn::Model> model = load_saved(saved);
  switch (saved.options.model.name) {
    case nn::ModelName::vit:
      return predict_forecast(arguments, saved, *model);
    case nn::ModelName::swinir:
      return predict_finer(arguments, saved, *model);
    case nn::ModelName::gpt:
    case nn::ModelName::llama:
      return predict_text(arguments, saved, *model);
    case nn::ModelName::mlp:
    case nn::ModelName::own:
      break;
  }
  throw ConfigError({.what = "an mlp has no prediction to draw",
                     .why = "its output is a class",
                     .fix = "use braid eval for its accuracy"});
}

}  // namespace

void add_predict(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command = app.add_subcommand(
      "predict", "make a forecast, a refined field or a text with a saved model");
  command->add_option("run", arguments->run, "run folder, or one of its checkpoint folders")
      ->required()
      ->type_name("RUN");
  command->add_option("--checkpoint", arguments->checkpoint,
                      "newest, best, or a folder name such as step-00000100 (default: newest)");
  command->add_option("--input", arguments->input,
                      "fields to start from: .npy, HDF5 or netCDF-4 file, in physical units");
  command->add_option(
      "--dataset", arguments->dataset,
      "name of the dataset in the HDF5 file (default: data.variables or data.dataset of the run)");
  command->add_option("--frame", arguments->frame,
                      "frame to take from [frames, channels, rows, columns] (default: 0)");
  command
      ->add_option("--steps", arguments->steps,
                   "forecast: number of steps, each made from the one before (default: 1)")
      ->check(above_zero());
  command->add_option("--channel", arguments->channel,
                      "channel that the picture shows, by name or number (default: the first)");
  command->add_option(
      "--out", arguments->out,
      "output file: .npy, .h5 or .nc (netCDF-4 with named variables and coordinates); a PNG is "
      "written beside it");
  command->add_option("--prompt", arguments->prompt,
                      "language model: text to continue, or token numbers");
  command->add_option("--tokens", arguments->text.tokens,
                      "language model: number of tokens to add");
  command->add_option("--temperature", arguments->text.temperature,
                      "language model: sampling temperature; 0 always takes the most likely token");
  command->add_option("--top-k", arguments->text.top_k,
                      "language model: sample from the k most likely tokens");
  command->add_option("--seed", arguments->text.seed, "language model: seed of the sampling");
  add_sets(*command, arguments->sets);
  command->callback(
      [&action, arguments] { action = [arguments] { return predict_command(*arguments); }; });
}

}  // namespace braid::cli
