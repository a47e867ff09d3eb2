// SPDX-License-Identifier: BSD-3-Clause
// A model whose blocks are spread over the ranks of a pipeline: this rank's stages, the schedule
// they run in, and the weight that the first and the last stage share.
//
//   Staged staged(model, options, ranks);
//   staged.run(micros, {.loss = ..., .before_backward = ...});   // gradients are there
//   at::Tensor output = staged.forward(input, pass);             // undefined but on the last stage
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "braid/memory/stash.h"
#include "braid/nn/model.h"
#include "braid/parallel/pipeline.h"
#include "braid/train/layout.h"
#include "braid/train/ranks.h"

namespace braid::train {

// A micro-batch of a step as every rank of the pipeline has it.
struct Micro {
  at::Tensor input, target;
  int64_t weight = 0;  // of its samples in the loss of the batch; 0: padding
  nn::Pass pass = {};  // its own: place in the batch and extras
};

struct StagedHooks {
  // Of the last stage's output, what backward starts from.
  std::function<at::Tensor(const at::Tensor& output, const Micro& micro)> loss;
  std::function<void(bool last)> before_backward = {};  // last: of all stages of this rank
  memory::Stash* stash = nullptr;  // where what autograd keeps waits; null: as it is
};

class Staged {
 public:
  Staged(nn::Model& model, const RunOptions& options, const Ranks& ranks);
  ~Staged();
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  // Micro-batches that a step runs of which so many have samples: a list of actions by hand always
  // has as many.
  int64_t micros(int64_t filled) const;
  void run(const std::vector<Micro>& micros, const StagedHooks& hooks);
  at::Tensor forward(const at::Tensor& input, const nn::Pass& pass);

  bool has_last() const;    // this rank gets the output
  int output_rank() const;  // of the pipeline axis, that gets it
  const comm::Group& axis() const { return axis_; }

 private:
  class Tie;
  parallel::Pipeline& pipeline(int64_t micros);
  Carry run_stage(int stage, const Carry& carry, const Micro& micro);

  nn::Model& model_;
  Stages stages_;
  comm::Group axis_;
  std::function<parallel::Schedule(int64_t micros)> schedule_;
  std::shared_ptr<kernels::Deferred> later_;
  int64_t planned_;                                  // micro-batches of a step
  bool fixed_;                                       // no other number will do
  std::map<int64_t, parallel::Pipeline> pipelines_;  // by number of micro-batches
  std::unique_ptr<Tie> tie_;                         // null: no weight is shared with another rank
};

}  // namespace braid::train
