// SPDX-License-Identifier: BSD-3-Clause
// Every model with every choice of what is computed again and what lies on the host.
//
//   for (const test::ChoiceCase& each : test::all_choices()) test::expect_choice(each);
#pragma once
#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <vector>

#include "support/dry_real.h"
#include "support/small_runs.h"

namespace braid::test {

struct ChoiceCase {
  std::string model;  // "moe": gpt with experts
  std::string words;
};

inline std::string choice_text(const ChoiceCase& given) { return given.model + "_" + given.words; }

inline void PrintTo(const ChoiceCase& given, std::ostream* out) { *out << choice_text(given); }

inline constexpr std::array choice_models = {"mlp", "vit", "swinir", "gpt", "llama", "moe"};
inline constexpr std::array recompute_words = {"kept", "blocks", "blocks2", "attention", "matmuls"};
inline constexpr std::array offload_words = {"kept", "optimizer", "activations",
                                             "optimizer_activations", "parameters"};

inline train::RunOptions choice_run(const ChoiceCase& given) {
  const auto name = [&] {
    for (const auto model :
         {nn::ModelName::mlp, nn::ModelName::vit, nn::ModelName::swinir, nn::ModelName::llama})
      if (given.model == name_of(model)) return model;
    return nn::ModelName::gpt;
  };
  train::RunOptions run = tiny_run(name(), "fp32");
  if (given.model == "moe") run.model.gpt.moe.experts = 4;
  run.optimizer.rule = {.name = optim::Algorithm::adamw, .lr = 1e-3, .weight_decay = 0.1};
  run.memory = memory_words(given.words);
  if (run.memory.offloads("parameters")) run.train.zero = 3;
  return run;
}

inline void expect_choice(const ChoiceCase& given) { expect_dry_is_real(choice_run(given)); }

inline std::vector<ChoiceCase> all_choices() {
  std::vector<ChoiceCase> all;
  for (const char* model : choice_models)
    for (const char* again : recompute_words)
      for (const char* host : offload_words)
        all.push_back({model, std::string(again) + "_" + host});
  return all;
}

// Each pair of choices for at least one model, each choice alone for all but one of them.
inline std::vector<ChoiceCase> choice_cover() {
  std::vector<ChoiceCase> cover;
  const std::vector<ChoiceCase> all = all_choices();
  const size_t hosts = offload_words.size(), pairs = recompute_words.size() * hosts;
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t model = i / pairs, again = i % pairs / hosts, host = i % hosts;
    const bool alone = again == 0 || host == 0;
    if (alone || (again + host + model) % 5 == 0) cover.push_back(all[i]);
  }
  return cover;
}

}  // namespace braid::test
