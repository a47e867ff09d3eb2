// SPDX-License-Identifier: BSD-3-Clause
// braid predict RUN: a forecast, a finer picture or a text from a saved model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <optional>
#include <sstream>

#include "braid/core/fs.h"
#include "braid/core/units.h"
#include "braid/data/arrays.h"
#include "braid/nn/generate.h"
#include "braid/report/png.h"
#include "braid/train/evaluate.h"
#include "braid/train/predict.h"
#include "braid/train/trainer.h"
#include "cli/command.h"

namespace braid::cli {
namespace {

struct PredictArguments {
  std::string run, checkpoint = "newest", input, dataset = "fields", out = "prediction.npy", prompt;
  std::optional<int64_t> frame;
  int64_t steps = 1, channel = 0;
  nn::GenerateOptions text;
  std::vector<std::string> sets;
};

at::Tensor read_fields(const PredictArguments& arguments) {
  if (arguments.input.empty())
    throw ConfigError({.what = "there is no --input",
                       .why = "the model takes a field of [channels, rows, columns]",
                       .fix = "--input file.npy, or --input file.h5 --frame 12"});
  // A file of years is larger than memory: only the frame is read.
  const at::Tensor frame = data::read_array(
      arguments.input, {.dataset = arguments.dataset, .frame = arguments.frame.value_or(0)});
  if (frame.dim() == 3) return frame;
  if (frame.dim() == 2 && !arguments.frame)
    return data::read_array(arguments.input, {.dataset = arguments.dataset});
  throw DataError(
      {.what = fmt::format("{} has {} dimensions{}", arguments.input, frame.dim() + 1,
                           arguments.frame ? ", and --frame was given" : ""),
       .why = "[channels, rows, columns] or [frames, channels, rows, columns] is needed",
       .fix = "reshape it"});
}

std::pair<std::string, std::vector<float>> panel(const std::string& title,
                                                 const at::Tensor& field) {
  const at::Tensor host = field.contiguous();
  return {title, {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()}};
}

void write_picture(const std::string& out, PictureRecord picture) {
  const std::string file = std::filesystem::path(out).replace_extension(".png").string();
  write_atomic(file, report::png_of(picture));
  fmt::print("wrote {} and {}\n", out, file);
}

void expect_channels(const PredictArguments& arguments, const at::Tensor& field, int64_t channels,
                     bool more) {
  if (field.size(0) == channels || (more && field.size(0) > channels)) return;
  throw DataError({.what = fmt::format("{} has {} channels, the model takes {}", arguments.input,
                                       field.size(0), channels),
                   .why = "each channel of the model needs its field",
                   .fix = "give a file with the channels that the model was trained on"});
}

void expect_channel(const PredictArguments& arguments, int64_t channels) {
  if (arguments.channel >= 0 && arguments.channel < channels) return;
  throw ConfigError({.what = fmt::format("--channel {}", arguments.channel),
                     .why = fmt::format("the output has channels 0 to {}", channels - 1),
                     .fix = "choose one of these for the picture"});
}

void expect_steps(const PredictArguments& arguments, const nn::VitOptions& model) {
  if (arguments.steps == 1 || model.channels_in == model.channels_out) return;
  throw ConfigError({.what = fmt::format("--steps {} with {} channels in and {} out",
                                         arguments.steps, model.channels_in, model.channels_out),
                     .why = "each output is the next input",
                     .fix = "--steps 1"});
}

Exit predict_forecast(const PredictArguments& arguments, const SavedModel& saved,
                      nn::Model& model) {
  const nn::VitOptions& sizes = saved.options.model.vit;
  const auto& image = sizes.image;
  expect_steps(arguments, sizes);
  expect_channel(arguments, std::min(sizes.channels_in, sizes.channels_out));
  at::Tensor now = read_fields(arguments);
  expect_channels(arguments, now, sizes.channels_in, /*more=*/true);
  if (now.size(1) < image[0] || now.size(2) < image[1])
    throw DataError(
        {.what = fmt::format("{} is {} x {}, the model takes {} x {}", arguments.input, now.size(1),
                             now.size(2), image[0], image[1]),
         .why = "a larger field is cropped from the top left, a smaller one cannot be used",
         .fix = "give a field of the size that the model was trained on"});
  now = now.narrow(0, 0, saved.options.model.vit.channels_in)
            .narrow(1, 0, image[0])
            .narrow(2, 0, image[1]);
  const at::Tensor states = train::forecast(
      model, train::normalisation_of(saved.options.data, now.size(0)), now, arguments.steps);
  data::write_array(arguments.out, states);
  const std::string name = train::channel_name(arguments.channel);
  PictureRecord picture{.tag = name, .rows = now.size(1), .columns = now.size(2)};
  picture.panels = {panel(name + " now", now[arguments.channel]),
                    panel(fmt::format("{} after {} steps", name, arguments.steps),
                          states[arguments.steps - 1][arguments.channel])};
  write_picture(arguments.out, picture);
  return Exit::ok;
}

Exit predict_finer(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model) {
  const int64_t channels = saved.options.model.swinir.channels;
  expect_channel(arguments, channels);
  const at::Tensor coarse = read_fields(arguments);
  expect_channels(arguments, coarse, channels, /*more=*/false);
  const at::Tensor fine = train::super_resolve(model, coarse);
  data::write_array(arguments.out, fine);
  PictureRecord picture{.tag = "fine", .rows = fine.size(1), .columns = fine.size(2)};
  picture.panels = {panel(fmt::format("channel {}", arguments.channel), fine[arguments.channel])};
  write_picture(arguments.out, picture);
  return Exit::ok;
}

// Byte-level models read the prompt's bytes; others take token numbers separated by blanks.
std::vector<int64_t> prompt_tokens(const std::string& prompt, bool bytes, int64_t vocabulary) {
  std::vector<int64_t> tokens;
  if (bytes) {
    for (const unsigned char byte : prompt) tokens.push_back(byte);
  } else {
    std::istringstream words(prompt);
    for (std::string word; words >> word;) {
      const std::optional<double> number = parse_number(word);
      if (!number || *number != std::floor(*number))
        throw ConfigError({.what = fmt::format("\"{}\" in --prompt is not a token number", word),
                           .why = "this model was trained on numbered tokens, not on text",
                           .fix = "--prompt \"12 7 201\""});
      tokens.push_back(static_cast<int64_t>(*number));
    }
  }
  for (const int64_t token : tokens)
    if (token < 0 || token >= vocabulary)
      throw ConfigError({.what = fmt::format("token {} in --prompt", token),
                         .why = fmt::format("the model knows tokens 0 to {}", vocabulary - 1),
                         .fix = "leave it out"});
  return tokens;
}

Exit predict_text(const PredictArguments& arguments, const SavedModel& saved, nn::Model& model) {
  const bool bytes = saved.options.data.kind == data::Kind::text;
  const auto& sizes = saved.options.model;
  const int64_t vocabulary =
      sizes.name == nn::ModelName::gpt ? sizes.gpt.vocabulary : sizes.llama.vocabulary;
  std::vector<int64_t> tokens = prompt_tokens(arguments.prompt, bytes, vocabulary);
  nn::GenerateOptions options = arguments.text;
  options.sequence = sizes.name == nn::ModelName::gpt ? sizes.gpt.sequence : sizes.llama.sequence;
  options.device = train::device_of(saved.options.train);
  tokens = nn::generate(model, tokens, options);
  if (bytes)
    fmt::print("{}\n", std::string(tokens.begin(), tokens.end()));
  else
    fmt::print("{}\n", fmt::join(tokens, " "));
  return Exit::ok;
}

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
      ->check(CLI::PositiveNumber);
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
