// SPDX-License-Identifier: BSD-3-Clause
// Continues a list of tokens with a language model (gpt, llama), one token at a time.
//
//   auto text = nn::generate(*model, prompt,
//                            {.tokens = 100, .temperature = 0.8, .top_k = 40, .seed = 1});
#pragma once
#include <cstdint>
#include <vector>

#include "braid/nn/model.h"

namespace braid::nn {

struct GenerateOptions {
  int64_t tokens = 100;    // how many to add
  double temperature = 1;  // 0: always the likeliest token
  int64_t top_k = 0;       // choose among the k likeliest; 0: among all
  uint64_t seed = 0;       // token number n of a text is f(seed, n, scores)
  int64_t sequence =
      1024;  // the model sees at most this many of the last tokens; model.sequence of its config
  c10::Device device = c10::kCPU;
};

// The prompt followed by the new tokens. Throws ConfigError for an empty prompt or options that say
// nothing.
std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt,
                              GenerateOptions options = {});

}  // namespace braid::nn
