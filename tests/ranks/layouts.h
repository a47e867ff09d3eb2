// SPDX-License-Identifier: BSD-3-Clause
// One step of a small model on many ranks and in one process, to be compared.
#pragma once
#include <gtest/gtest.h>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "braid/core/param.h"
#include "braid/nn/model.h"
#include "braid/train/measure.h"
#include "braid/train/session.h"
#include "support/cpu.h"
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
  fill(batch.input, 128);
  fill(batch.target, tokens ? 128 : 4);
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
  std::map<std::string, int64_t> first;
};

inline double weight_of(const data::Batch& batch) {
  double sum = 0;
  for (const int64_t weight : batch.weights) sum += static_cast<double>(weight);
  return sum;
}

// Gradients of the batch, then two whole steps.
inline StepOutcome run_steps(const train::RunOptions& run, const data::Batch& batch,
                             const train::Ranks& ranks) {
  const bool dry = run.train.zero == 3 && !ranks.alone();
  const auto model = train::build_model(run, dry);
  train::StepParts parts(*model, run, c10::kCPU, ranks);
  const nn::Pass pass{.training = true, .seed = 5, .step = 3};
  const auto begin = [&] {
    if (!ranks.alone()) parts.rounds.begin({.weight = weight_of(batch)});
  };
  StepOutcome outcome;
  begin();
  outcome.loss = parts.step.gradients(batch, pass).loss.item<double>();
  for (const Param& param : parts.params) {
    outcome.first[param.name] = param.piece.first;
    outcome.gradients[param.name] = param.tensor.grad().detach().flatten().clone();
  }
  parts.optimizer.zero_grad();
  for (int step = 0; step < 2; ++step) {
    begin();
    parts.run(batch, pass, run.optimizer.rule.lr);
  }
  for (const Param& param : parts.params)
    outcome.weights[param.name] = param.tensor.detach().flatten().clone();
  return outcome;
}

inline train::Ranks ranks_of(const comm::Group& world, const train::RunOptions& run) {
  train::Ranks ranks;
  ranks.mesh =
      parallel::Mesh(run.mesh, world.size(), world.rank(), static_cast<int>(run.train.zero));
  ranks.world = ranks.control = world;
  return ranks;
}

}  // namespace braid::test
