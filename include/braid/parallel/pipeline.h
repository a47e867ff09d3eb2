// SPDX-License-Identifier: BSD-3-Clause
// Runs a schedule: this rank's stages of a model, over the ranks of the pipeline axis. For any
// LibTorch module that is a list of parts.
//
//   parallel::Pipeline pipeline(parallel::make_schedule({.ranks = 2, .micros = 4}), world);
//   pipeline.run({.forward = [&](int, const Carry& in, int) { return Carry{part(in[0])}; },
//                 .loss = [&](const Carry& out, int micro) { return loss(out[0], micro); },
//                 .carried = [&](int, int) { return specs; }});   // gradients are there
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/group.h"
#include "braid/core/blocks.h"
#include "braid/kernels/deferred.h"
#include "braid/parallel/schedule.h"

namespace braid::parallel {

// The model as the pipeline sees it. Callbacks of stages that a rank does not hold are not called,
// but `carried` is for both ends of a message.
struct PipelineWork {
  // Stage 0 gets an empty carry: it takes the micro-batch's input itself.
  std::function<Carry(int stage, const Carry& carry, int micro)> forward;
  // Of the last stage: the scalar that backward starts from.
  std::function<at::Tensor(const Carry& output, int micro)> loss = {};
  // What `stage` gets from the stage before it. Floating point tensors have gradients that go back,
  // others have none.
  std::function<std::vector<CarrySpec>(int stage, int micro)> carried = {};
  // Before a backward pass of a stage, and before that of its weights where it is split; `last`:
  // the last one of its kind in this run.
  std::function<void(int stage, int micro, bool last)> before_backward = {};
  std::function<void(int stage)> gather = {}, release = {};
  std::function<void(int stage, int micro)> update = {};  // of schedules without flush: PipeDream
  c10::Device device = c10::kCPU;                         // of what is carried
};

class Pipeline {
 public:
  // `later`: of the model's linear layers, for schedules that split the backward pass.
  Pipeline(Schedule schedule, comm::Group axis, std::shared_ptr<kernels::Deferred> later = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  const Schedule& schedule() const;
  // All micro-batches, forward and backward: gradients are added to those that are there. If it
  // throws, the group is given up, so that the other ranks end, too.
  void run(const PipelineWork& work);
  // Forward alone, for evaluation: what the last stage gave for each micro-batch; empty on ranks
  // without it.
  std::vector<Carry> forward(const PipelineWork& work, int micros);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace braid::parallel
