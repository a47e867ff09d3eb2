// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include "braid/core/error.h"
#include "braid/core/rng.h"

namespace braid::nn {
namespace {

void check_generate(const std::vector<int64_t>& prompt, const GenerateOptions& o) {
  if (prompt.empty())
    throw ConfigError({.what = "the prompt holds no token",
                       .why = "the model predicts what follows a token",
                       .fix = "give at least one token, for example the end-of-text token"});
  if (o.tokens < 0 || o.temperature < 0 || o.top_k < 0 || o.sequence < 1)
    throw ConfigError({
        .what = fmt::format("tokens = {}, temperature = {}, top_k = {}, sequence = {}", o.tokens,
                            o.temperature, o.top_k, o.sequence),
        .why = "counts and temperature are not negative, and the model must see a token",
        .fix = "set temperature = 0 for the likeliest text, top_k = 0 for no limit",
    });
}

// Scores of what follows the last token, on the host.
std::vector<double> next_scores(Model& model, std::vector<int64_t> text, const GenerateOptions& o) {
  const int64_t seen = std::min<int64_t>(o.sequence, static_cast<int64_t>(text.size()));
  int64_t* first = text.data() + (static_cast<int64_t>(text.size()) - seen);
  const at::Tensor tokens = at::from_blob(first, {1, seen}, c10::kLong).to(o.device);
  const at::Tensor output = model.whole_output(model.forward(tokens, {}));  // [1, seen, vocabulary]
  const at::Tensor last =
      output.select(1, seen - 1).select(0, 0).to(c10::kCPU, c10::kDouble).contiguous();
  const double* values = last.const_data_ptr<double>();
  return {values, values + last.numel()};
}

// Picks in proportion to exp(score / temperature) among the k likeliest; equal scores: the lower
// token first.
int64_t sample_token(const std::vector<double>& scores, const GenerateOptions& o, RandomKey key,
                     uint64_t place) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  if (o.temperature == 0) return order[0];
  if (o.top_k > 0) order.resize(std::min<size_t>(order.size(), o.top_k));
  std::vector<double> until;  // running sum of weights
  double total = 0;
  for (int64_t token : order)
    until.push_back(total += std::exp((scores[token] - scores[order[0]]) / o.temperature));
  const double point = random_uniform(key, place) * total;
  const auto found = std::upper_bound(until.begin(), until.end(), point);
  return order[std::min<size_t>(found - until.begin(), order.size() - 1)];
}

}  // namespace

std::vector<int64_t> generate(Model& model, const std::vector<int64_t>& prompt,
                              GenerateOptions options) {
  check_generate(prompt, options);
  const at::NoGradGuard no_grad;
  const RandomKey key = random_key(options.seed, "generate");
  std::vector<int64_t> text = prompt;
  for (int64_t i = 0; i < options.tokens; ++i) {
    const auto scores = next_scores(model, text, options);
    text.push_back(sample_token(scores, options, key, text.size()));
  }
  return text;
}

}  // namespace braid::nn
