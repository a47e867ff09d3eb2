// SPDX-License-Identifier: BSD-3-Clause
// One step of a small model on many ranks and in one process, to be compared.
#pragma once
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/param.h"
#include "braid/nn/model.h"
#include "braid/train/layout.h"
#include "braid/train/measure.h"
#include "braid/train/session.h"
#include "support/ranks.h"
#include "support/small_runs.h"
#include "train/step_parts.h"

namespace braid::test {

struct Layout {
  const char* name;
  int zero;
  int64_t shard;  // 0: all ranks
  bool keep = false;
};
inline constexpr Layout layouts[] = {
    {"ddp", 0, 1},   {"zero1", 1, 0}, {"zero2", 2, 0}, {"zero3", 3, 0}, {"zero3_keep", 3, 0, true},
    {"hybrid", 3, 2}};

using Values = std::map<std::string, at::Tensor>;

// Samples of every kind of weight: some targets of token models do not count.
inline data::Batch random_batch(const train::RunOptions& run, int64_t samples) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
  data::Batch batch = train::empty_batch(run, samples, c10::kCPU);
  const auto fill = [&](at::Tensor& tensor, int64_t classes) {
    if (tensor.scalar_type() == c10::kLong)
      tensor = at::randint(0, classes, tensor.sizes(), generator, tensor.options());
    else
      tensor = at::randn(tensor.sizes(), generator, tensor.options());
  };
  const bool tokens = batch.input.scalar_type() == c10::kLong;
  const int64_t known =
      run.model.name == nn::ModelName::gpt ? run.model.gpt.vocabulary : run.model.llama.vocabulary;
  fill(batch.input, known);
  fill(batch.target, tokens ? known : 4);
  batch.global_samples = samples;
  if (!tokens) return batch;
  for (int64_t i = 0; i < samples; ++i) {
    batch.target[i].narrow(0, 0, i).fill_(-100);
    batch.weights[static_cast<size_t>(i)] = batch.target.size(1) - i;
  }
  return batch;
}

// What the loader gives a rank: a run of samples, and padding where others have more.
inline data::Batch share_of(const data::Batch& whole, int64_t rank, int64_t ranks) {
  const int64_t even = whole.samples / ranks, larger = whole.samples % ranks;
  data::Batch part = whole;
  part.samples = even + (rank < larger ? 1 : 0);
  part.first = rank * even + std::min(rank, larger);
  const int64_t rows = even + (larger > 0 ? 1 : 0);
  const int64_t from = std::min(part.first, whole.samples - rows);
  part.input = whole.input.narrow(0, from, rows);
  part.target = whole.target.narrow(0, from, rows);
  if (from != part.first) {  // the padding stands behind
    part.input = part.input.roll(-(part.first - from), 0);
    part.target = part.target.roll(-(part.first - from), 0);
  }
  part.weights.assign(whole.weights.begin() + part.first,
                      whole.weights.begin() + part.first + part.samples);
  part.weights.resize(static_cast<size_t>(rows), 0);
  return part;
}

struct StepOutcome {
  double loss = 0;
  Values gradients, weights;  // flat, whole or the pieces of a rank
  std::map<std::string, Piece> pieces;
  int64_t own = 0;         // elements that no other rank counts
  int64_t recomputed = 0;  // parts of the model that ran again
};

inline double weight_of(const data::Batch& batch) {
  double sum = 0;
  for (const int64_t weight : batch.weights) sum += static_cast<double>(weight);
  return sum;
}

// Gradients of the batch, then two whole steps.
inline StepOutcome run_steps(const train::RunOptions& run, const data::Batch& batch,
                             const train::Ranks& ranks) {
  const auto model = train::build_model(run, ranks);
  train::StepParts parts(*model, run, c10::kCPU, ranks);
  const nn::Pass pass{.training = true, .seed = 5, .step = 3};
  const auto begin = [&] {
    if (!ranks.alone()) parts.rounds.begin({.weight = weight_of(batch)});
  };
  StepOutcome outcome;
  begin();
  outcome.loss = parts.step.gradients(batch, pass).loss.item<double>();
  for (const Param& param : parts.params) {
    outcome.pieces[param.name] = param.piece;
    if (!param.repeated) outcome.own += param.tensor.numel();
    outcome.gradients[param.name] = param.tensor.grad().detach().flatten().clone();
  }
  parts.optimizer.zero_grad();
  for (int step = 0; step < 2; ++step) {
    begin();
    parts.run(batch, pass, run.optimizer.rule.lr);
  }
  for (const Param& param : parts.params)
    outcome.weights[param.name] = param.tensor.detach().flatten().clone();
  if (parts.recompute != nullptr) outcome.recomputed = parts.recompute->counts().again;
  return outcome;
}

inline train::Ranks ranks_of(const comm::Group& world, const train::RunOptions& run) {
  train::Ranks ranks;
  ranks.mesh =
      parallel::Mesh(run.mesh, world.size(), world.rank(), static_cast<int>(run.train.zero));
  ranks.world = ranks.control = world;
  return ranks;
}

// The elements of `whole`, flat, that a piece of so many holds.
inline at::Tensor elements_of(const at::Tensor& whole, const Piece& piece, int64_t count) {
  at::Tensor part = at::empty({count}, whole.options());
  for (const Run& run : runs_of(piece, count))
    part.narrow(0, run.at, run.count).copy_(whole.narrow(0, run.from, run.count));
  return part;
}

inline void expect_close(const Values& mine, const Values& whole,
                         const std::map<std::string, Piece>& pieces, double tolerance,
                         const std::string& what) {
  for (const auto& [name, part] : mine) {
    ASSERT_TRUE(whole.contains(name)) << name;
    const at::Tensor all = whole.at(name);
    const at::Tensor expected = elements_of(all, pieces.at(name), part.numel());
    if (tolerance == 0) {
      EXPECT_TRUE(part.equal(expected)) << what << " of " << name;
      continue;
    }
    const double scale = at::linalg_vector_norm(all).item<double>();
    const double error = at::linalg_vector_norm(part.sub(expected)).item<double>();
    EXPECT_LE(error, tolerance * std::max(scale, 1e-6)) << what << " of " << name;
  }
}

inline void expect_same(const StepOutcome& mine, const StepOutcome& whole, double tolerance) {
  EXPECT_NEAR(mine.loss, whole.loss, std::max(tolerance, 1e-15) * std::abs(whole.loss));
  EXPECT_FALSE(mine.gradients.empty());
  expect_close(mine.gradients, whole.gradients, mine.pieces, tolerance, "gradient");
  expect_close(mine.weights, whole.weights, mine.pieces, tolerance, "weight");
}

// The pieces of all owners are every element of the model, none twice.
inline void expect_all_elements(const StepOutcome& mine, const StepOutcome& whole,
                                const train::Ranks& ranks) {
  const at::Tensor sum = at::full({}, mine.own, c10::kLong);
  ranks.owners().all_reduce(sum).wait();
  EXPECT_EQ(sum.item<int64_t>(), whole.own);
}

}  // namespace braid::test
