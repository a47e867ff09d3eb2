// SPDX-License-Identifier: BSD-3-Clause
#include "train/step_parts.h"

#include "braid/parallel/replicate.h"
#include "braid/parallel/zero.h"

namespace braid::train {
namespace {

// Sums are of losses that are divided by the weight of the whole batch already.
std::unique_ptr<parallel::Sync> sync_of(const nn::Model& model, const RunOptions& options,
                                        const Ranks& ranks) {
  const c10::ScalarType wire = policy_of(options.train).reduce;
  const auto stage = static_cast<int>(options.train.zero);
  const parallel::ReplicasOf replicas = ranks.replicas_of();  // all ranks make these groups
  const comm::Group shard = ranks.shard(), owners = ranks.owners();
  if (!ranks.sums()) return nullptr;
  if (stage == 0 || model.params().empty())
    return std::make_unique<parallel::Replicate>(
        model.params(), replicas, owners,
        parallel::ReplicateOptions{.average = false, .wire = wire});
  parallel::ZeroOptions zero;
  zero.stage = stage;
  zero.average = false;
  zero.keep_gathered = options.train.keep_gathered;
  zero.late = ranks.mesh.size(parallel::Axis::pipeline) > 1;
  zero.reduce = wire;
  zero.initial = [&model](const std::string& name, const at::Tensor& values, int64_t first) {
    model.initial(name, values, first);
  };
  return std::make_unique<parallel::Zero>(parallel::units_of(model.params(), model.blocks()), shard,
                                          replicas, owners, zero);
}

}  // namespace

StepParts::StepParts(nn::Model& model, const RunOptions& options, c10::Device device,
                     const Ranks& ranks)
    : policy(policy_of(options.train)),
      rounds(ranks.control, ranks.copies()),
      sync(sync_of(model, options, ranks)),
      blocks(dynamic_cast<BlockRunner*>(sync.get())),
      staged(ranks.mesh.size(parallel::Axis::pipeline) > 1
                 ? std::make_unique<Staged>(model, options, ranks)
                 : nullptr),
      params(sync != nullptr ? sync->params() : model.params()),
      optimizer(params, options.optimizer.rule, policy.master),
      scaler(policy.scaled_loss
                 ? std::optional<optim::LossScaler>(std::in_place, options.optimizer.scaler, device)
                 : std::nullopt),
      ema(options.train.ema > 0
              ? std::optional<optim::Ema>(std::in_place, params, options.train.ema)
              : std::nullopt),
      step(model, optimizer,
           {.loss = options.train.loss,
            .micro_batch = options.train.micro_batch.value_or(0),
            .clip = options.train.clip,
            .experts = experts_of(options.model) > 0},
           scaler ? &*scaler : nullptr,
           {.sync = sync.get(),
            .rounds = ranks.alone() ? nullptr : &rounds,
            .losses = ranks.losses(),
            .tokens = ranks.tokens(),
            .owners = ranks.owners(),
            .blocks = blocks,
            .staged = staged.get(),
            .phase = ranks.phase}) {}

StepResult StepParts::run(const data::Batch& batch, const nn::Pass& pass, double lr) {
  StepResult result = step.run(batch, pass, lr);
  if (ema) ema->update();
  return result;
}

at::Tensor StepParts::forward(nn::Model& model, const at::Tensor& input, nn::Pass pass) {
  pass.blocks = blocks;
  return staged != nullptr ? staged->forward(input, pass) : nn::run(model, input, pass);
}

void StepParts::swap_averages() {
  if (!ema) return;
  ema->swap();
  if (sync != nullptr) sync->publish();
}

}  // namespace braid::train
