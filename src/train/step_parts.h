// SPDX-License-Identifier: BSD-3-Clause
// What a config makes of a model's step: optimizer, loss scaler, averaged weights and the step over
// them. The trainer and the measured step both take it from here, so that a dry run counts what
// training does.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/memory/recompute.h"
#include "braid/memory/stash.h"
#include "braid/optim/ema.h"
#include "braid/optim/optimizer.h"
#include "braid/optim/scaler.h"
#include "braid/parallel/host.h"
#include "braid/parallel/sync.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"
#include "braid/train/rounds.h"
#include "braid/train/step.h"
#include "train/graph.h"
#include "train/staged.h"

namespace braid::train {

struct StepParts {
  StepParts(nn::Model& model, const RunOptions& options, c10::Device device,
            const Ranks& ranks = {});
  StepParts(const StepParts&) = delete;
  StepParts& operator=(const StepParts&) = delete;

  StepResult run(const data::Batch& batch, const nn::Pass& pass, double lr);
  StepResult whole_step(const data::Batch& batch, const nn::Pass& pass,
                        const optim::LearningRate& lr);  // without the graph
  // Work beside the steps, in the memory of the graph if there is one.
  void beside(const std::function<void()>& work) const;

  // Output of this rank; undefined where another rank of the pipeline has it.
  at::Tensor forward(nn::Model& model, const at::Tensor& input, nn::Pass pass);
  void swap_averages();  // weights <-> their averages, if there are any; on all ranks

  // What is saved, the same with the optimizer on the host and without (step_saved.cpp).
  std::vector<Param> stored() const;     // weights in the dtype of the model
  std::vector<Param> on_device() const;  // params as the device has them
  State optimizer_state() const;
  State prepare_optimizer(const State& saved);  // to be filled, then loaded()
  void loaded();  // weights, averages and states were filled; all ranks

  Precision policy;
  Rounds rounds;
  std::unique_ptr<parallel::Sync> sync;          // null: one rank alone
  parallel::HostParams* host;                    // sync, if that is one
  BlockRunner* blocks;                           // null: weights are always there
  std::unique_ptr<memory::Stash> stash;          // null: what autograd keeps stays as it is
  std::unique_ptr<memory::Recompute> recompute;  // null: nothing is computed again
  std::unique_ptr<Staged> staged;                // null: no pipeline
  std::vector<Param> params;                     // what this rank updates
  optim::Optimizer optimizer;
  std::optional<optim::LossScaler> scaler;
  std::optional<optim::Ema> ema;
  Step step;                         // holds on to those above
  std::unique_ptr<StepGraph> graph;  // null: the step runs operator by operator
  std::string no_graph;              // why
  bool eager = false;                // the next steps are looked at: no replay
};

}  // namespace braid::train
