// SPDX-License-Identifier: BSD-3-Clause
// The one training step: forward and backward of each micro-batch, clip, update. Nothing in it
// reads a value on the host.
//
//   train::Step step(*model, optimizer, {.loss = nn::Loss::l1, .micro_batch = 4});
//   train::StepResult result = step.run(batch, pass, lr);   // result.loss is a device scalar
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/data/loader.h"
#include "braid/nn/loss.h"
#include "braid/nn/model.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/parallel/host.h"
#include "braid/parallel/sync.h"
#include "braid/train/rounds.h"

namespace braid::memory {
class Stash;
}
namespace braid::train {

class Staged;
struct Micro;

struct StepOptions {
  nn::Loss loss = nn::Loss::mse;
  int64_t micro_batch = 0;  // samples a forward pass; 0: all at once
  double clip = 0;
  bool experts = false;  // the model has routers: their losses and loads are in the result
};

// How a step is one part of a step of many ranks; as it is: of one rank alone.
struct StepShare {
  parallel::Sync* sync = nullptr;        // sums gradients over the ranks; null: nobody to sum with
  parallel::HostParams* host = nullptr;  // the same, if updates are made on the host
  Rounds* rounds = nullptr;           // knows what the whole batch weighs, begun before each step;
                                      // null: one rank alone
  comm::Group losses = {};            // ranks that know the losses of all samples together
  comm::Group tokens = {};            // ranks that have all tokens together, of one stage
  comm::Group owners = {};            // ranks whose gradients together are those of the model
  BlockRunner* blocks = nullptr;      // stands around the blocks of the model
  SegmentRunner* segments = nullptr;  // computes parts of the model again; null: all is kept
  memory::Stash* stash = nullptr;     // where what autograd keeps waits; null: as it is
  Staged* staged = nullptr;           // runs the stages of a pipeline; null: the model is here
  std::function<void(const char*)> phase = {};  // told which part of the step begins
};

struct StepResult {
  at::Tensor loss;       // weighted mean over the batch, of all ranks
  at::Tensor grad_norm;  // before clipping; undefined without it
  at::Tensor found_inf;  // fp16: not 0 if the update was skipped
  at::Tensor scale;      // fp16: that the loss was multiplied by
  at::Tensor aux_loss;   // of routers, mean over samples and summed over layers; undefined without
  at::Tensor max_load;   // largest share of the tokens of a layer that one expert got, 1: all
  int64_t weight = 0;    // samples, or targets that count, of all ranks
};

class Step {
 public:
  Step(nn::Model& model, optim::Optimizer& optimizer, StepOptions options,
       optim::LossScaler* scaler = nullptr, StepShare share = {});
  StepResult run(const data::Batch& batch, nn::Pass pass, const optim::LearningRate& lr);
  // Of the loss, by micro-batch that runs; what a captured step has built in.
  std::vector<double> shares(const data::Batch& batch) const;
  // Gradients of the batch's mean loss, without an update: what tests and `braid parity` compare.
  StepResult gradients(const data::Batch& batch, nn::Pass pass);

 private:
  using AllExtras = std::deque<nn::Extras>;  // of each micro-batch: they stay where they are
  std::vector<Micro> micros_of(const data::Batch& batch, nn::Pass pass, AllExtras& extras) const;
  void aim(Micro& micro) const;
  at::Tensor one_after_the_other(const std::vector<Micro>& micros, const data::Batch& batch) const;
  at::Tensor in_stages(const std::vector<Micro>& micros, const data::Batch& batch) const;
  at::Tensor loss_of(const at::Tensor& output, const Micro& micro, const data::Batch& batch) const;
  at::Tensor scaled(const at::Tensor& loss) const;
  void sum_routing(const AllExtras& extras, const data::Batch& batch, StepResult& result) const;
  void enter(const char* phase) const;
  double whole_weight(const data::Batch& batch) const;
  void apply(const optim::LearningRate& lr, const parallel::HostUpdate& given, int64_t step);
  void update(const optim::LearningRate& lr, int64_t step, StepResult& result);

  nn::Model& model_;
  optim::Optimizer& optimizer_;
  StepOptions options_;
  optim::LossScaler* scaler_;
  StepShare share_;
};

}  // namespace braid::train
