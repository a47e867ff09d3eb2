// SPDX-License-Identifier: BSD-3-Clause
// What a config makes of a model's step: optimizer, loss scaler, averaged weights and the step over
// them. The trainer and the measured step both take it from here, so that a dry run counts what
// training does.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "braid/optim/ema.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/parallel/sync.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"
#include "braid/train/rounds.h"
#include "braid/train/step.h"
#include "train/staged.h"

namespace braid::train {

struct StepParts {
  StepParts(nn::Model& model, const RunOptions& options, c10::Device device,
            const Ranks& ranks = {});
  StepParts(const StepParts&) = delete;
  StepParts& operator=(const StepParts&) = delete;

  StepResult run(const data::Batch& batch, const nn::Pass& pass, double lr);

  // Output of this rank; undefined where another rank of the pipeline has it.
  at::Tensor forward(nn::Model& model, const at::Tensor& input, nn::Pass pass);
  void swap_averages();  // weights <-> their averages, if there are any; on all ranks

  Precision policy;
  Rounds rounds;
  std::unique_ptr<parallel::Sync> sync;  // null: one rank alone
  BlockRunner* blocks;                   // null: weights are always there
  std::unique_ptr<Staged> staged;        // null: no pipeline
  std::vector<Param> params;             // what this rank updates and saves
  optim::Optimizer optimizer;
  std::optional<optim::LossScaler> scaler;
  std::optional<optim::Ema> ema;
  Step step;  // holds on to those above
};

}  // namespace braid::train
