// SPDX-License-Identifier: BSD-3-Clause
// Training in a pipeline that is never emptied: weights change while micro-batches are under way,
// and each of them meets in its backward pass the weights that it met in its forward pass.
//
//   parallel::PipeDream flow(
//       {.kind = parallel::ScheduleKind::pipedream, .ranks = 4, .rounds = 100}, world,
//       named_params(*stage));
//   optim::Optimizer sgd(flow.params(), {.name = optim::Algorithm::sgd, .lr = 0.1});
//   flow.run(work, [&](int) { sgd.step(); });
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "braid/core/param.h"
#include "braid/parallel/pipeline.h"

namespace braid::parallel {

class PipeDream {
 public:
  // pipedream (with or without vertical_sync) or pipedream_2bw; `params` of this rank's stage.
  PipeDream(const ScheduleOptions& options, const comm::Group& axis, std::vector<Param> params);
  ~PipeDream();
  PipeDream(PipeDream&&) noexcept;
  PipeDream& operator=(PipeDream&&) noexcept;

  const Schedule& schedule() const;
  // The newest weights: tensors of their own, in the order given. An update reads their gradients
  // and writes them.
  const std::vector<Param>& params() const;

  // All micro-batches of the schedule. `update` changes params() that have a gradient, and no
  // others; `micro` is the last micro-batch that counts. It comes after each micro-batch, or after
  // each `micros` of them (2BW: gradients are added up). Afterwards the model has the newest
  // weights.
  void run(PipelineWork work, const std::function<void(int micro)>& update);

  // Of the last run on this rank, in the order of the backward passes.
  const std::vector<VersionUse>& log() const;
  int most_versions() const;  // that were there at the same time, the newest one included

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::parallel
