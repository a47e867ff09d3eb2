// SPDX-License-Identifier: BSD-3-Clause
#include "cli/convert_config.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "braid/checkpoint/convert.h"
#include "braid/core/error.h"
#include "braid/train/session.h"
#include "cli/hugging_face.h"

namespace braid::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* head_tensor = "model/lm_head.weight";

// Of the folder FROM. A single file may lie anywhere: what is beside it counts only if nothing else
// says what the weights are.
fs::path config_json_of(const ConvertPlace& place, const checkpoint::Reader& from) {
  if (from.is_checkpoint()) return {};
  const bool folder = fs::is_directory(place.from);
  if (!folder && !place.config.empty()) return {};
  const fs::path file = (folder ? fs::path(place.from) : from.dir()) / "config.json";
  return fs::exists(file) ? file : fs::path();
}

bool holds_doubles(const checkpoint::Reader& from) {
  return std::ranges::all_of(from.tensors(), [](const auto& entry) {
    return !c10::isFloatingType(entry.second.dtype) || entry.second.dtype == c10::kDouble;
  });
}

// What config.json does not say are placeholders: predict needs none of it, eval data alone.
train::RunOptions run_of(const nn::ModelOptions& model, const ConvertPlace& place,
                         const checkpoint::Reader& from) {
  train::RunOptions run;
  run.run.name = fs::absolute(fs::path(place.to) / "").parent_path().filename().string();
  run.model = model;
  run.data.kind = data::Kind::tokens;
  run.data.sequence = std::min<int64_t>(
      1024, model.name == nn::ModelName::gpt ? model.gpt.sequence : model.llama.sequence);
  run.train.steps = 1000;
  run.train.global_batch = 8;
  run.train.loss = nn::Loss::cross_entropy;
  if (holds_doubles(from)) run.train.precision = "fp64";
  return run;
}

// Both sentences name where `tied` was read.
void check_head(const nn::ModelOptions& model, const checkpoint::Reader& from,
                const std::string& origin) {
  if (model.name != nn::ModelName::gpt && model.name != nn::ModelName::llama) return;
  if (is_tied(model) && from.has(head_tensor) && !checkpoint::head_repeats_embedding(from))
    throw ConfigError(
        {.what = fmt::format("{} says that the output layer is the token embedding (tied), but "
                             "lm_head.weight differs from it",
                             origin),
         .why = "a tied model has one weight for both",
         .fix = "say tie_word_embeddings: false in config.json, or model.tied: false in --config"});
  if (!is_tied(model) && !from.has(head_tensor))
    throw ConfigError(
        {.what = fmt::format("{} says that the output layer has weights of its own (not tied), but "
                             "there is no lm_head.weight",
                             origin),
         .why = "nothing else can stand for it",
         .fix = "copy the missing file of weights; if the embedding is the output layer, say "
                "tie_word_embeddings: true in config.json, or model.tied: true in --config"});
}

// By names and shapes, without reading or allocating a weight.
void check_fit(const train::RunOptions& run, const ConvertPlace& place,
               const checkpoint::Reader& from, const std::string& origin) {
  check_head(run.model, from, origin);
  State weights;
  for (const auto& [name, stored] : from.tensors()) {
    if (!name.starts_with("model/") || (name == head_tensor && is_tied(run.model))) continue;
    weights.tensors[name.substr(6)] =
        at::empty(stored.shape, at::TensorOptions(c10::kMeta).dtype(stored.dtype));
  }
  nn::Build dry;
  dry.device = c10::kMeta;
  const auto model = nn::make_model(run.model, dry);
  train::check_weights(
      *model, weights,
      {.name = place.from,
       .fix = fmt::format("give the config that these weights belong to; the sizes came from {}",
                          origin)});
}

ModelBeside described(const HuggingFaceModel& theirs, const ConvertPlace& place,
                      const checkpoint::Reader& from) {
  const train::RunOptions run = run_of(theirs.options, place, from);
  check_fit(run, place, from, theirs.file);
  ModelBeside model{.run = run, .yaml = resolved_yaml(run), .json = theirs.file, .notes = {}};
  model.notes.push_back(fmt::format(
      "config.yaml: the model comes from {}; data and train in it are placeholders", theirs.file));
  if (!theirs.unknown.empty())
    model.notes.push_back(
        fmt::format("{} has keys that braid does not know: {}; the converted model is right only "
                    "if they do not change the output",
                    theirs.file, fmt::join(theirs.unknown, ", ")));
  return model;
}

}  // namespace

ModelBeside model_beside(const ConvertPlace& place, const checkpoint::Reader& from) {
  const fs::path json = config_json_of(place, from);
  if (!place.config.empty()) {
    const train::RunOptions run = train::load_run(place.config);
    if (!json.empty()) check_same_model(read_hugging_face(json), run.model, place.config);
    check_fit(run, place, from, place.config);
    return {.run = run, .yaml = resolved_yaml(run), .json = json.string(), .notes = {}};
  }
  if (!json.empty()) return described(read_hugging_face(json), place, from);
  const std::string yaml = from.config();
  if (yaml.empty()) return {};
  return {.run = train::load_run((from.dir() / "config.yaml").string()),
          .yaml = yaml,
          .json = "",
          .notes = {}};
}

}  // namespace braid::cli
