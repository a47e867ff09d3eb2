// SPDX-License-Identifier: BSD-3-Clause
// braid convert FROM TO: checkpoints and weights from one form into another.
#include "braid/checkpoint/convert.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "braid/core/precision.h"
#include "braid/train/kept_data.h"
#include "cli/command.h"
#include "cli/convert_config.h"
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

// A checkpoint without a config cannot be read by eval and predict.
ConfigError no_config(const ConvertArguments& arguments) {
  return ConfigError(
      {.what = fmt::format("nothing says which model the weights of {} belong to", arguments.from),
       .why = "it holds neither config.yaml nor config.json, and eval and predict build the model "
              "from the config of a checkpoint",
       .fix = fmt::format("braid convert {} {} --config CONFIG, or --format safetensors for the "
                          "weights alone",
                          arguments.from, arguments.to)});
}

c10::ScalarType dtype_of_weights(const checkpoint::Reader& from,
                                 const checkpoint::ConvertOptions& options) {
  if (options.dtype) return *options.dtype;
  for (const auto& [name, stored] : from.tensors())
    if (name.starts_with("model/") && c10::isFloatingType(stored.dtype)) return stored.dtype;
  return c10::kFloat;
}

void add_config_json(const ModelBeside& model, const checkpoint::Reader& from,
                     checkpoint::ConvertOptions& options, std::vector<std::string>& notes) {
  const std::string text =
      model.run ? hugging_face_config(model.run->model, dtype_of_weights(from, options)) : "";
  if (!text.empty())
    options.texts["config.json"] = text;
  else
    notes.push_back(
        fmt::format("config.json is not written, so transformers cannot load the "
                    "folder by itself: {}",
                    model.run ? "it has no model like this one"
                              : "nothing says which model the weights belong to"));
}

// The config of the weights, and notes on it for the user.
std::vector<std::string> add_texts(const ConvertArguments& arguments,
                                   const checkpoint::Reader& from,
                                   checkpoint::ConvertOptions& options) {
  if (options.format == Format::safetensors) return {};
  const std::filesystem::path theirs = std::filesystem::path(arguments.from) / "config.json";
  const bool elsewhere = !from.is_checkpoint() && std::filesystem::exists(theirs);
  if (options.format == Format::hugging_face && elsewhere && arguments.config.empty()) {
    options.texts["config.json"] = hugging_face_config(theirs, options.dtype);
    return {};
  }
  const ModelBeside model =
      model_beside({.from = arguments.from, .to = arguments.to, .config = arguments.config}, from);
  if (model.run) options.tied = is_tied(model.run->model);
  std::vector<std::string> notes;
  if (options.format == Format::hugging_face) {
    add_config_json(model, from, options, notes);
    return notes;
  }
  if (!model.run) throw no_config(arguments);
  options.texts["config.yaml"] = model.yaml;
  return model.notes;
}

checkpoint::ConvertOptions options_of(const ConvertArguments& arguments) {
  checkpoint::ConvertOptions options{.format = format_of(arguments),
                                     .max_shard = shard_size(arguments.max_shard),
                                     .ranks = arguments.ranks,
                                     .force = arguments.force};
  for (const c10::ScalarType dtype : weight_dtypes)
    if (arguments.dtype == dtype_name(dtype)) options.dtype = dtype;
  return options;
}

// Weights alone have no place for them.
void note_statistics(const checkpoint::Reader& from, const checkpoint::ConvertOptions& options,
                     std::vector<std::string>& notes) {
  if (options.format == Format::braid || !from.is_checkpoint()) return;
  const std::optional<train::KeptData> kept = train::kept_data(from);
  if (!kept || kept->statistics.empty()) return;
  std::vector<std::string> keys;
  for (const auto& [key, values] : kept->statistics) keys.push_back(key);
  notes.push_back(
      fmt::format("not written: the statistics of the training data ({}), which only a "
                  "braid checkpoint holds",
                  fmt::join(keys, ", ")));
}

void print_json(const ConvertArguments& arguments, const checkpoint::Reader& from,
                const checkpoint::Converted& done) {
  const nlohmann::json result = {{"from", from.dir().string()}, {"to", arguments.to},
                                 {"tensors", done.tensors},     {"bytes", done.bytes},
                                 {"files", done.files},         {"left_out", done.left_out}};
  fmt::print("{}\n", result.dump());
}

Exit convert_command(const ConvertArguments& arguments) {
  const auto from = checkpoint::Reader::open(arguments.from);
  checkpoint::ConvertOptions options = options_of(arguments);
  std::vector<std::string> notes = add_texts(arguments, from, options);
  const auto line = progress_line("MB");
  const auto megabytes = [&](int64_t done, int64_t all) {
    if (line) line(done / 1'000'000, all / 1'000'000);
  };
  note_statistics(from, options, notes);
  const checkpoint::Converted done = convert(from, arguments.to, options, megabytes);
  for (const std::string& note : notes) fmt::print(stderr, "braid: {}\n", note);
  if (arguments.json) {
    print_json(arguments, from, done);
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
  command->add_option(
      "--config", arguments->config,
      "config of the model that the weights belong to, for weights without config.yaml "
      "and config.json");
  command->add_flag("--force", arguments->force, "replace TO if it exists");
  add_json(*command, arguments->json);
  command->callback(
      [&action, arguments] { action = [arguments] { return convert_command(*arguments); }; });
}

}  // namespace braid::cli
