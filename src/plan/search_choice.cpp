// SPDX-License-Identifier: BSD-3-Clause
// A choice as words and as a config.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "braid/plan/search.h"

namespace braid::plan {
namespace {

using memory::Again;
using parallel::ScheduleKind;

std::string mesh_words(const parallel::MeshOptions& mesh) {
  std::vector<std::string> words;
  const auto add = [&](const char* axis, int64_t size) {
    if (size > 1) words.push_back(fmt::format("{} {}", axis, size));
  };
  add("data", mesh.data.value_or(1));
  add("shard", mesh.shard.value_or(1));
  add("tensor", mesh.tensor);
  add("context", mesh.context);
  add("pipeline", mesh.pipeline);
  add("expert", mesh.expert);
  return words.empty() ? "one GPU" : fmt::format("{}", fmt::join(words, " x "));
}

const char* again_word(Again again) {
  constexpr const char* words[] = {"none", "blocks", "attention", "matmuls", "budget"};
  return words[static_cast<size_t>(again)];
}

// Stages a rank that a schedule works with, the config's where it says so.
int64_t chunks_for(ScheduleKind kind, int64_t said) {
  if (kind == ScheduleKind::interleaved) return said > 1 ? said : 2;
  return kind == ScheduleKind::zb_v ? 2 : 1;
}

void apply_pipeline(parallel::ParallelOptions& parallel, const Choice& choice) {
  if (choice.mesh.pipeline == 1) return;
  parallel.schedule = choice.schedule;
  parallel.chunks = chunks_for(choice.schedule, parallel.chunks);
  parallel.schedule_file.clear();
  const auto stages = static_cast<size_t>(choice.mesh.pipeline * parallel.chunks);
  if (parallel.split.size() != stages) parallel.split.clear();  // it is of other stages
}

}  // namespace

std::string to_text(const Choice& choice) {
  std::string text = mesh_words(choice.mesh);
  if (choice.zero > 0) text += fmt::format(", ZeRO-{}", choice.zero);
  if (choice.recompute != Again::none)
    text += fmt::format(", recompute {}", again_word(choice.recompute));
  text += fmt::format(", micro {}", choice.micro_batch);
  if (choice.mesh.pipeline > 1) text += fmt::format(", {}", to_text(choice.schedule));
  if (!choice.precision.empty()) text += ", " + choice.precision;
  if (!choice.offload.empty())
    text += fmt::format(", offload {}", fmt::join(choice.offload, " and "));
  return text;
}

train::RunOptions apply(const train::RunOptions& options, const Choice& choice) {
  train::RunOptions applied = options;
  applied.mesh = choice.mesh;
  applied.train.zero = choice.zero;
  applied.train.micro_batch = choice.micro_batch;
  if (!choice.precision.empty() && choice.precision != options.train.precision) {
    applied.train.precision = choice.precision;  // single dtypes belong to the other policy
    applied.train.param = applied.train.compute = applied.train.stream = {};
    applied.train.reduce = applied.train.master = {};
  }
  applied.memory.recompute = choice.recompute;
  applied.memory.plan.clear();
  applied.memory.offload = choice.offload;
  if (!applied.memory.offloads("optimizer")) applied.memory.delay = 0;
  apply_pipeline(applied.parallel, choice);
  return applied;
}

}  // namespace braid::plan
