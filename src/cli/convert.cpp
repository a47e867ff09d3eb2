// SPDX-License-Identifier: BSD-3-Clause
// braid convert FROM TO: checkpoints and weights from one form into another.
#include "braid/checkpoint/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "braid/core/precision.h"
#include "cli/command.h"
#include "cli/hugging_face.h"

namespace braid::cli {
namespace {

using checkpoint::Format;

struct ConvertArguments {
  std::string from, to;
  std::string format;  // empty: by the name of `to`
  std::string max_shard = "5GB";
  std::string dtype;
  std::string config;
  int64_t ranks = 1;
  bool force = false;
  bool json = false;
};

constexpr c10::ScalarType weight_dtypes[] = {c10::kDouble, c10::kFloat, c10::kBFloat16, c10::kHalf};

Format format_of(const ConvertArguments& arguments) {
  if (arguments.format == "safetensors") return Format::safetensors;
  if (arguments.format == "hf") return Format::hugging_face;
  if (arguments.format == "braid") return Format::braid;
  return arguments.to.ends_with(".safetensors") ? Format::safetensors : Format::braid;
}

Bytes shard_size(const std::string& text) {
  const std::optional<Bytes> bytes = parse_bytes(text);
  if (bytes && bytes->count > 0) return *bytes;
  throw ConfigError({.what = fmt::format("--max-shard {} is not a size", text),
                     .why = "it is a number of bytes with a unit",
                     .fix = "for example --max-shard 5GB"});
}

// The config that goes with the weights: the one given, or that of the run they come from.
void add_texts(const ConvertArguments& arguments, const checkpoint::Reader& from,
               checkpoint::ConvertOptions& options) {
  const bool given = !arguments.config.empty();
  if (options.format == Format::safetensors || (!given && from.config().empty())) return;
  if (options.format == Format::braid && !given) {
    options.texts["config.yaml"] = from.config();
    return;
  }
  const train::RunOptions run =
      train::load_run(given ? arguments.config : (from.dir() / "config.yaml").string());
  options.tied = is_tied(run.model);
  if (options.format == Format::braid)
    options.texts["config.yaml"] = train::resolved_yaml(run);
  else if (const std::string text = hugging_face_config(run.model); !text.empty())
    options.texts["config.json"] = text;
}

checkpoint::ConvertOptions options_of(const ConvertArguments& arguments,
                                      const checkpoint::Reader& from) {
  checkpoint::ConvertOptions options{.format = format_of(arguments),
                                     .max_shard = shard_size(arguments.max_shard),
                                     .ranks = arguments.ranks,
                                     .force = arguments.force};
  for (const c10::ScalarType dtype : weight_dtypes)
    if (arguments.dtype == dtype_name(dtype)) options.dtype = dtype;
  add_texts(arguments, from, options);
  return options;
}

Exit convert_command(const ConvertArguments& arguments) {
  const auto from = checkpoint::Reader::open(arguments.from);
  const checkpoint::ConvertOptions options = options_of(arguments, from);
  const auto line = progress_line("MB");
  const auto megabytes = [&](int64_t done, int64_t all) {
    if (line) line(done / 1'000'000, all / 1'000'000);
  };
  const checkpoint::Converted done = convert(from, arguments.to, options, megabytes);
  if (arguments.json) {
    const nlohmann::json result = {{"from", from.dir().string()}, {"to", arguments.to},
                                   {"tensors", done.tensors},     {"bytes", done.bytes},
                                   {"files", done.files},         {"left_out", done.left_out}};
    fmt::print("{}\n", result.dump());
    return Exit::ok;
  }
  fmt::print("wrote {} tensors, {}, in {} file{} to {}\n", done.tensors, to_text(Bytes{done.bytes}),
             done.files, done.files == 1 ? "" : "s", arguments.to);
  if (!done.left_out.empty())
    fmt::print("left out: {} (equal to the embedding: a tied model)\n",
               fmt::join(done.left_out, ", "));
  return Exit::ok;
}

}  // namespace

void add_convert(CLI::App& app, Action& action) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command =
      app.add_subcommand("convert", "convert checkpoints and weights between formats");
  command
      ->add_option("from", arguments->from,
                   "run folder (its newest checkpoint), checkpoint folder, .safetensors file, or "
                   "Hugging Face folder")
      ->required()
      ->type_name("FROM");
  command->add_option("to", arguments->to, "file or folder to write")->required()->type_name("TO");
  command
      ->add_option("--format", arguments->format,
                   "braid (checkpoint), safetensors (one file) or hf (Hugging Face folder); "
                   "default: by the name of TO")
      ->check(CLI::IsMember({"braid", "safetensors", "hf"}));
  command->add_option("--max-shard", arguments->max_shard, "hf: largest size of a file, e.g. 5GB");
  command->add_option("--dtype", arguments->dtype, "dtype of the weights (default: unchanged)")
      ->check(CLI::IsMember({"fp64", "fp32", "bf16", "fp16"}));
  command
      ->add_option("--ranks", arguments->ranks,
                   "braid: number of shards, as if N ranks had saved it")
      ->check(CLI::Range(1, 100'000));
  command->add_option("--config", arguments->config,
                      "config of the model, for weights that come without one");
  command->add_flag("--force", arguments->force, "replace TO if it exists");
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return convert_command(*arguments); }; });
}

}  // namespace braid::cli
