// SPDX-License-Identifier: BSD-3-Clause
#include "train/step_parts.h"

namespace braid::train {

StepParts::StepParts(nn::Model& model, const RunOptions& options, c10::Device device)
    : policy(policy_of(options.train)),
      optimizer(model.params(), options.optimizer.rule, policy.master),
      scaler(policy.scaled_loss
                 ? std::optional<optim::LossScaler>(std::in_place, options.optimizer.scaler, device)
                 : std::nullopt),
      ema(options.train.ema > 0
              ? std::optional<optim::Ema>(std::in_place, model.params(), options.train.ema)
              : std::nullopt),
      step(model, optimizer,
           {.loss = options.train.loss,
            .micro_batch = options.train.micro_batch.value_or(0),
            .clip = options.train.clip},
           scaler ? &*scaler : nullptr) {}

StepResult StepParts::run(const data::Batch& batch, const nn::Pass& pass, double lr) {
  StepResult result = step.run(batch, pass, lr);
  if (ema) ema->update();
  return result;
}

}  // namespace braid::train
