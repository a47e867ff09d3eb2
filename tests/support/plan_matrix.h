// SPDX-License-Identifier: BSD-3-Clause
// Every model x precision x recompute x axis: what a plan says of the memory of each rank against
// what real ranks take, to the byte.
//
//   for (const test::MatrixCase& each : test::matrix()) test::expect_matrix(each);
#pragma once
#include <fmt/format.h>

#include <array>
#include <mutex>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "braid/plan/layout.h"
#include "braid/train/life.h"
#include "braid/train/ranks.h"
#include "support/dry_real.h"
#include "support/ranks.h"
#include "support/small_runs.h"

namespace braid::test {

struct MatrixCase {
  std::string model, precision, again, axis;
  std::array<std::string, 4> words() const { return {model, precision, again, axis}; }
};
inline std::string matrix_text(const MatrixCase& c) {
  return fmt::format("{}_{}_{}_{}", c.model, c.precision, c.again, c.axis);
}
inline void PrintTo(const MatrixCase& c, std::ostream* out) { *out << matrix_text(c); }

inline std::vector<MatrixCase> matrix() {
  std::vector<MatrixCase> all;
  for (const char* model : {"vit", "swinir", "gpt", "llama", "moe"})
    for (const char* precision : {"fp32", "bf16", "fp16"})
      for (const char* again : {"kept", "blocks", "attention"})
        for (const char* axis :
             {"zero0", "zero1", "zero2", "zero3", "tensor2", "context2", "pipeline2", "expert2"})
          if (std::string(axis) != "expert2" || std::string(model) == "moe")
            all.push_back({model, precision, again, axis});
  return all;
}

// So few cases that each two of the words that go together stand together in one of them.
inline std::vector<MatrixCase> matrix_cover() {
  using Pair = std::pair<std::string, std::string>;
  const auto pairs_of = [](const MatrixCase& c) {
    std::set<Pair> pairs;
    const auto words = c.words();
    for (size_t i = 0; i < words.size(); ++i)
      for (size_t k = i + 1; k < words.size(); ++k) pairs.emplace(words[i], words[k]);
    return pairs;
  };
  std::set<Pair> missing;
  const std::vector<MatrixCase> all = matrix();
  for (const MatrixCase& c : all) missing.merge(pairs_of(c));
  std::vector<MatrixCase> cover;
  while (!missing.empty()) {
    const MatrixCase* best = nullptr;
    size_t most = 0;
    for (const MatrixCase& c : all) {
      size_t fresh = 0;
      for (const Pair& pair : pairs_of(c)) fresh += missing.count(pair);
      if (fresh > most) std::tie(best, most) = std::pair(&c, fresh);
    }
    for (const Pair& pair : pairs_of(*best)) missing.erase(pair);
    cover.push_back(*best);
  }
  return cover;
}

inline train::RunOptions matrix_run(const MatrixCase& c) {
  using nn::ModelName;
  const ModelName name = c.model == "vit"      ? ModelName::vit
                         : c.model == "swinir" ? ModelName::swinir
                         : c.model == "gpt"    ? ModelName::gpt
                                               : ModelName::llama;
  train::RunOptions run = tiny_run(name, c.precision);
  if (c.model == "moe") {  // with a capacity what a rank gets does not depend on the tokens
    run.model.llama.moe.experts = 4;
    run.model.llama.moe.capacity = 1.0;
  }
  run.optimizer.rule = {.name = optim::Algorithm::adamw, .lr = 1e-3, .weight_decay = 0.1};
  run.memory = memory_words(c.again);
  run.mesh.data = run.mesh.shard = 1;
  if (c.axis == "zero0") run.mesh.data = 2;
  if (c.axis.starts_with("zero") && c.axis != "zero0") {
    run.mesh.shard = 2;
    run.train.zero = c.axis.back() - '0';
  }
  if (c.axis == "tensor2") run.mesh.tensor = 2;
  if (c.axis == "context2") run.mesh.context = 2;
  if (c.axis == "expert2") run.mesh.expert = 2;
  if (c.axis == "pipeline2") {
    run.mesh.pipeline = 2;
    run.train.micro_batch = 2;
  }
  return run;
}

inline void expect_moment(const plan::MomentBytes& plan, const train::Phase& real,
                          const char* moment) {
  SCOPED_TRACE(moment);
  EXPECT_EQ(plan.without_scratch, real.without_scratch.bytes)
      << peak_difference(plan.peak, real.without_scratch);
  EXPECT_EQ(plan.kinds_without_scratch, real.without_scratch.by_kind);
  for (const auto& [op, scratch] : real.scratch) {
    const auto modelled = plan.scratch.find(op);
    if (modelled != plan.scratch.end() && modelled->second.bytes == scratch.bytes) continue;
    EXPECT_TRUE(cpu_scratch().contains(op)) << op << " takes " << scratch.bytes << " bytes";
  }
}

// Ranks as threads over a network, all of them at once.
inline void expect_matrix(const MatrixCase& c) {
  SCOPED_TRACE(matrix_text(c));
  const train::RunOptions run = matrix_run(c);
  constexpr int world = 2;
  const plan::LayoutRun layout =
      plan::dry_layout(run, world, {.device = c10::kCPU, .trace = false});
  std::vector<train::Life> lives(world);
  on_ranks(world, [&](comm::Group group) {
    train::Ranks ranks;
    ranks.mesh = parallel::Mesh(run.mesh, world, group.rank(), static_cast<int>(run.train.zero));
    ranks.world = ranks.control = group;
    lives[static_cast<size_t>(group.rank())] =
        train::live(run, {.dry = false, .ranks = &ranks}, {.trace = false});
  });
  for (const plan::RankRun& rank : layout.ranks) {
    SCOPED_TRACE(fmt::format("rank {}, {}", rank.rank, rank.name));
    const train::Life& life = lives[static_cast<size_t>(rank.rank)];
    expect_moment(rank.memory.first_step, life.first_step, "first step");
    expect_moment(rank.memory.steady_step, life.step, "step");
    expect_moment(rank.memory.checkpoint, life.checkpoint, "checkpoint");
    expect_moment(rank.memory.evaluation, life.evaluation, "evaluation");
  }
}

}  // namespace braid::test
