// SPDX-License-Identifier: BSD-3-Clause
// Layouts as words: "tensor2_shard2_z3_micro2" is mesh.tensor = 2, mesh.shard = 2, train.zero = 3
// and micro-batches of two samples.
#pragma once
#include <fmt/format.h>

#include <map>
#include <sstream>
#include <string>

#include "ranks/layouts.h"

namespace braid::test {

struct AxesCase {
  nn::ModelName model;
  std::string words;
};

inline std::string case_text(const AxesCase& given) {
  return fmt::format("{}_{}", name_of(given.model), given.words);
}

using WordMeaning = void (*)(train::RunOptions&, int64_t);

inline const std::map<std::string, WordMeaning>& layout_words() {
  using Run = train::RunOptions;
  using parallel::ContextMethod;
  static const std::map<std::string, WordMeaning> words = {
      {"data", [](Run& run, int64_t n) { run.mesh.data = n; }},
      {"shard", [](Run& run, int64_t n) { run.mesh.shard = n; }},
      {"tensor", [](Run& run, int64_t n) { run.mesh.tensor = n; }},
      {"context", [](Run& run, int64_t n) { run.mesh.context = n; }},
      {"pipeline", [](Run& run, int64_t n) { run.mesh.pipeline = n; }},
      {"expert", [](Run& run, int64_t n) { run.mesh.expert = n; }},
      {"z", [](Run& run, int64_t n) { run.train.zero = n; }},
      {"micro", [](Run& run, int64_t n) { run.train.micro_batch = n; }},
      {"chunks", [](Run& run, int64_t n) { run.parallel.chunks = n; }},
      {"overlap", [](Run& run, int64_t n) { run.parallel.overlap = n; }},
      {"whole", [](Run& run, int64_t) { run.parallel.sequence = false; }},
      {"keep", [](Run& run, int64_t) { run.train.keep_gathered = true; }},
      {"regather", [](Run& run, int64_t) { run.parallel.regather = true; }},
      {"ring", [](Run& run, int64_t) { run.parallel.context = ContextMethod::ring; }},
      {"swap", [](Run& run, int64_t) { run.parallel.context = ContextMethod::all_to_all; }}};
  return words;
}

// Those that change the model: one process must have them, too.
inline const std::map<std::string, WordMeaning>& model_words() {
  using Run = train::RunOptions;
  static const std::map<std::string, WordMeaning> words = {
      {"untied", [](Run& run, int64_t) { run.model.gpt.tied = run.model.llama.tied = false; }},
      {"tied", [](Run& run, int64_t) { run.model.gpt.tied = run.model.llama.tied = true; }},
      {"rows", [](Run& run, int64_t n) { run.model.swinir.image[0] = n; }},
      {"heads",
       [](Run& run, int64_t n) {
         run.model.vit.heads = run.model.gpt.heads = run.model.llama.heads = n;
         run.model.llama.kv_heads = n;
       }},
      {"narrow",  // blocks compute, and add to the stream, in fp32
       [](Run& run, int64_t) { run.train.compute = run.train.stream = "fp32"; }},
      {"full",  // experts that may be: the rest of the tokens is dropped
       [](Run& run, int64_t) { run.model.gpt.moe.capacity = run.model.llama.moe.capacity = 1.0; }},
      {"moe",
       [](Run& run, int64_t n) { run.model.gpt.moe.experts = run.model.llama.moe.experts = n; }}};
  return words;
}

// One word of a layout; what is none of the above is a schedule ("zbh1" is zb_h1).
inline void apply_word(train::RunOptions& run, const std::string& word) {
  const size_t digit = word.find_last_not_of("0123456789") + 1;
  const int64_t size = digit < word.size() ? std::stol(word.substr(digit)) : 0;
  for (const auto* words : {&layout_words(), &model_words()})
    if (const auto found = words->find(word.substr(0, digit)); found != words->end())
      return found->second(run, size);
  const bool zero_bubble = word.starts_with("zb");
  run.parallel.schedule = parallel::schedule_kind(zero_bubble ? "zb_" + word.substr(2) : word);
}

inline train::RunOptions run_for(const AxesCase& given, const std::string& precision = "fp64") {
  train::RunOptions run = tiny_run(given.model, precision);
  std::istringstream words(given.words);
  for (std::string word; std::getline(words, word, '_');) apply_word(run, word);
  return run;
}

// The same run in one process: no mesh and the whole batch at once.
inline train::RunOptions alone_of(train::RunOptions run) {
  run.mesh = {};
  run.parallel = {};
  run.train.zero = 0;
  run.train.micro_batch.reset();
  return run;
}

inline int ranks_in(const train::RunOptions& run) {
  return static_cast<int>(run.mesh.data.value_or(1) * run.mesh.shard.value_or(1) * run.mesh.tensor *
                          run.mesh.context * run.mesh.pipeline * run.mesh.expert);
}

// Loss, gradients and weights after two steps, of every rank against one process.
inline void expect_layout(const AxesCase& given, double tolerance = 1e-12, int64_t samples = 7,
                          const std::string& precision = "fp64") {
  train::RunOptions run = run_for(given, precision);
  run.train.global_batch = samples;
  if (!run.mesh.data) run.mesh.data = 1;
  if (!run.mesh.shard) run.mesh.shard = 1;
  const data::Batch batch = random_batch(run, samples);
  const StepOutcome whole = run_steps(alone_of(run), batch, {});
  const int count = ranks_in(run);
  train::check_layout(run, parallel::Mesh(run.mesh, count, 0, static_cast<int>(run.train.zero)));
  on_ranks(count, [&](comm::Group world) {
    SCOPED_TRACE(fmt::format("rank {} of {}", world.rank(), given.words));
    const train::Ranks ranks = ranks_of(world, run);
    const StepOutcome mine =
        run_steps(run, share_of(batch, ranks.mesh.batch_rank(), ranks.mesh.batch_ranks()), ranks);
    expect_same(mine, whole, tolerance);
    expect_all_elements(mine, whole, ranks);
  });
}

}  // namespace braid::test
