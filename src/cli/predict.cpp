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
  CLI::App* command =
      app.add_subcommand("predict", "a forecast, a finer picture or a text from a saved model");
  command->add_option("run", arguments->run, "run folder or one checkpoint")
      ->required()
      ->type_name("RUN");
  command->add_option("--checkpoint", arguments->checkpoint, "newest, best or a folder name");
  command->add_option("--input", arguments->input,
                      ".npy or HDF5 file of fields, in physical units");
  command->add_option("--dataset", arguments->dataset, "name in the HDF5 file");
  command->add_option("--frame", arguments->frame,
                      "which frame of [frames, channels, rows, columns]");
  command->add_option("--steps", arguments->steps, "forecast: steps rolled out")
      ->check(above_zero());
  command->add_option("--channel", arguments->channel, "which channel the picture shows");
  command->add_option("--out", arguments->out, ".npy or .h5; a PNG is written beside it");
  command->add_option("--prompt", arguments->prompt,
                      "language model: text to continue, or token numbers");
  command->add_option("--tokens", arguments->text.tokens, "language model: tokens to add");
  command->add_option("--temperature", arguments->text.temperature,
                      "language model: 0 takes the likeliest");
  command->add_option("--top-k", arguments->text.top_k,
                      "language model: choose among the k likeliest");
  command->add_option("--seed", arguments->text.seed, "language model: of the choices");
  add_sets(*command, arguments->sets);
  command->callback(
      [&action, arguments] { action = [arguments] { return predict_command(*arguments); }; });
}

}  // namespace braid::cli
