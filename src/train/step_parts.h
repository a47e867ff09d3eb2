// SPDX-License-Identifier: BSD-3-Clause
// What a config makes of a model's step: optimizer, loss scaler, averaged weights and the step over
// them. The trainer and the measured step both take it from here, so that a dry run counts what
// training does.
#pragma once
#include <optional>

#include "braid/optim/ema.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/train/options.h"
#include "braid/train/step.h"

namespace braid::train {

struct StepParts {
  StepParts(nn::Model& model, const RunOptions& options, c10::Device device);
  StepParts(const StepParts&) = delete;
  StepParts& operator=(const StepParts&) = delete;

  StepResult run(const data::Batch& batch, const nn::Pass& pass, double lr);

  Precision policy;
  optim::Optimizer optimizer;
  std::optional<optim::LossScaler> scaler;
  std::optional<optim::Ema> ema;
  Step step;  // holds on to the two above
};

}  // namespace braid::train
