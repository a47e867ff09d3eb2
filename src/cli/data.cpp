// SPDX-License-Identifier: BSD-3-Clause
// braid data make: made-up data in the layouts that braid reads.
#include <fmt/format.h>

#include "braid/data/make.h"
#include "cli/command.h"
#include "cli/data_given.h"

namespace braid::cli {
namespace {

struct MakeArguments {
  std::string path;
  std::vector<int64_t> shape;  // C,H,W
  data::WeatherOptions weather;
  data::SlicesOptions slices;
  data::TokensOptions tokens;
  uint64_t seed = 1;
  bool no_header = false;
  bool force = false;
};

template <class Options>
void take_shape(const std::vector<int64_t>& shape, Options& options) {
  if (shape.empty()) return;
  options.channels = shape[0];
  options.height = shape[1];
  options.width = shape[2];
}

Exit make_weather(MakeArguments arguments) {
  take_shape(arguments.shape, arguments.weather);
  arguments.weather.seed = arguments.seed;
  arguments.weather.force = arguments.force;
  data::make_weather(arguments.path, arguments.weather, progress_line("frame"));
  fmt::print("wrote made-up weather to {}\n", arguments.path);
  return Exit::ok;
}

Exit make_slices(MakeArguments arguments) {
  take_shape(arguments.shape, arguments.slices);
  arguments.slices.seed = arguments.seed;
  arguments.slices.force = arguments.force;
  data::make_slices(arguments.path, arguments.slices, progress_line("day"));
  fmt::print("wrote made-up slices to {}\n", arguments.path);
  return Exit::ok;
}

Exit make_tokens(MakeArguments arguments) {
  arguments.tokens.seed = arguments.seed;
  arguments.tokens.force = arguments.force;
  arguments.tokens.header = !arguments.no_header;
  data::make_tokens(arguments.path, arguments.tokens, progress_line("token"));
  fmt::print("wrote made-up tokens to {}\n", arguments.path);
  return Exit::ok;
}

void add_make(CLI::App& data, Action& action) {
  auto arguments = std::make_shared<MakeArguments>();
  CLI::App* make = data.add_subcommand("make", "write synthetic data");
  make->require_subcommand(1);
  const auto kind = [&](const char* name, const char* help, Exit (*function)(MakeArguments)) {
    CLI::App* command = make->add_subcommand(name, help);
    command->add_option("path", arguments->path, "file or folder to write")
        ->required()
        ->type_name("PATH");
    command->add_option("--seed", arguments->seed, "seed of the random numbers");
    command->add_flag("--force", arguments->force,
                      "write there although the folder holds other files; files of the same names "
                      "are overwritten");
    command->callback(
        [&action, arguments, function] { action = [=] { return function(*arguments); }; });
    return command;
  };
  CLI::App* weather = kind(
      "weather", "years of smooth fields carried by a flow, for a forecasting ViT", make_weather);
  CLI::App* slices =
      kind("slices", "daily slices in physical units, for super-resolution", make_slices);
  CLI::App* tokens =
      kind("tokens", "a token file of a Markov chain, for language models", make_tokens);
  for (CLI::App* fields : {weather, slices})
    fields->add_option("--shape", arguments->shape, "channels, rows and columns")
        ->delimiter(',')
        ->expected(3)
        ->type_name("C,H,W");
  weather->add_option("--frames", arguments->weather.frames, "frames per year");
  weather->add_option("--years", arguments->weather.train_years, "years of training data");
  weather->add_option("--valid-years", arguments->weather.valid_years, "years of validation data");
  weather->add_option("--test-years", arguments->weather.test_years, "years of test data");
  slices->add_option("--days", arguments->slices.days, "slices per year");
  slices->add_option("--years", arguments->slices.years, "number of years");
  tokens->add_option("--tokens", arguments->tokens.tokens, "number of tokens");
  tokens->add_option("--vocabulary", arguments->tokens.vocabulary, "size of the vocabulary");
  tokens->add_flag("--no-header", arguments->no_header,
                   "write plain numbers without the 1 kB header");
}

}  // namespace

void add_data(CLI::App& app, Action& action) {
  CLI::App* data =
      app.add_subcommand("data", "make synthetic data, check data, or compute statistics");
  data->require_subcommand(1);
  add_make(*data, action);
  add_data_check(*data, action);
  add_data_stats(*data, action);
}

}  // namespace braid::cli
