// SPDX-License-Identifier: BSD-3-Clause
// Which model the weights of `braid convert` belong to, and the text that goes beside them.
//
//   const ModelBeside model = model_beside({.from = "gpt2", .to = "runs/gpt2"}, reader);
//   options.texts["config.yaml"] = model.yaml;
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "braid/train/options.h"

namespace braid::cli {

struct ConvertPlace {
  std::string from, to;
  std::string config;  // --config; "" if it was not given
};

struct ModelBeside {
  std::optional<train::RunOptions> run;  // none: nothing says which model it is
  std::string yaml;                      // config.yaml of a checkpoint
  std::string json;                      // path of transformers' config.json; "" if there is none
  std::vector<std::string> notes;        // for the user
};

// From --config, from the checkpoint itself, or from config.json beside the weights. Throws
// ConfigError if two of them disagree, if braid cannot represent the model, or if the weights do
// not fit.
ModelBeside model_beside(const ConvertPlace& place, const checkpoint::Reader& from);

}  // namespace braid::cli
