// SPDX-License-Identifier: BSD-3-Clause
// Text, or token numbers, continued by a language model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <sstream>

#include "braid/core/units.h"
#include "braid/train/trainer.h"
#include "cli/predict.h"

namespace braid::cli {
namespace {

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

}  // namespace

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

}  // namespace braid::cli
