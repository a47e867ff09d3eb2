// SPDX-License-Identifier: BSD-3-Clause
// config.json of Hugging Face's transformers for the models that it has too.
#pragma once
#include <string>

#include "braid/nn/options.h"

namespace braid::cli {

std::string hugging_face_config(const nn::ModelOptions& model);  // "" for other models
bool is_tied(const nn::ModelOptions& model);                     // the head is the embedding

}  // namespace braid::cli
