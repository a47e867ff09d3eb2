// SPDX-License-Identifier: BSD-3-Clause
// The memory of a GPT term by term, as papers write it down, beside what a dry run of the real step
// counts.
//
//   plan::GptTerms terms = plan::gpt_terms({.layers = 12, .width = 768}, /*batch=*/64);
//   double flops = terms.exact.total;   // and terms.parameters, terms.factor (74)
#pragma once
#include <cstdint>
#include <string>

#include "braid/nn/options.h"
#include "braid/train/options.h"

namespace braid::plan {

// Bytes of weights, gradients and optimizer by one way of counting, and all together.
struct Accounting {
  int64_t parameters = 0;  // that it counts with
  int64_t weights = 0, gradients = 0, optimizer = 0, states = 0;
  int64_t total = 0;         // with the activations of the batch, before the output layer
  int64_t with_logits = 0;   // and fp32 scores
  int64_t with_reserve = 0;  // total and a fifth for all else
};

struct GptTerms {
  int64_t layers = 0, width = 0, sequence = 0, heads = 0, vocabulary = 0, batch = 1;
  int64_t block = 0, blocks = 0, tokens = 0, positions = 0, head = 0;  // parameters
  int64_t parameters = 0;
  double scores_factor = 0;  // 5 a s / h: what the matrices of attention keep
  double factor = 0;         // 10 + 24 + 5 a s / h: bytes a token, a layer and a unit of width
  int64_t sample = 0;        // activations of a sample, 16-bit, in all layers
  int64_t sample_selective = 0, sample_full = 0;  // with the scores, with everything recomputed
  int64_t activations = 0;                        // of the batch
  int64_t logits = 0;                             // fp32 scores of the batch
  Accounting published;  // 20 bytes a parameter (fp32 weights twice), whole millions of parameters
  Accounting exact;      // 16 bytes a parameter
};
GptTerms gpt_terms(const nn::GptOptions& model, int64_t batch);

// The table of a config, with a dry run of its step in the last column. ConfigError for another
// model.
std::string terms_text(const train::RunOptions& options);

}  // namespace braid::plan
