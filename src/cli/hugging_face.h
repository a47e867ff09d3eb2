// SPDX-License-Identifier: BSD-3-Clause
// config.json of Hugging Face's transformers: written for the models that both have, and read.
//
//   const HuggingFaceModel theirs = read_hugging_face("gpt2/config.json");
//   theirs.options.gpt.heads;   // 12
#pragma once
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "braid/nn/options.h"

namespace braid::cli {

// "" for models that transformers lacks, also GPT and Llama with a mixture of experts. `weights`:
// dtype of the weights in the folder.
std::string hugging_face_config(const nn::ModelOptions& model, c10::ScalarType weights);
// The text of a config.json whose weights get another dtype, if one is given.
std::string hugging_face_config(const std::filesystem::path& file,
                                std::optional<c10::ScalarType> weights);
bool is_tied(const nn::ModelOptions& model);  // the output layer shares the token embedding

// The model that a config.json describes.
struct HuggingFaceModel {
  nn::ModelOptions options;
  std::string file;
  std::map<std::string, std::string> origins;  // "heads" -> "n_head = 12", as the file has it
  std::vector<std::string> unknown;            // keys that braid does not know
};

// Throws ConfigError for everything that would change the model's output and that braid cannot
// represent.
HuggingFaceModel read_hugging_face(const std::filesystem::path& file);

// Throws ConfigError unless `given`, read from the config `spec`, is the same model.
void check_same_model(const HuggingFaceModel& theirs, const nn::ModelOptions& given,
                      const std::string& spec);

}  // namespace braid::cli
