// SPDX-License-Identifier: BSD-3-Clause
// One run of a rank's actions.
#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "braid/parallel/pipeline.h"
#include "parallel/pipeline_mail.h"

namespace braid::parallel {

// What a rank keeps of a stage and a micro-batch between its passes.
struct PipelineCell;

class PipelineRun {
 public:
  PipelineRun(const Schedule& schedule, const comm::Group& axis, const PipelineWork& work,
              std::shared_ptr<kernels::Deferred> later);
  ~PipelineRun();
  PipelineRun(const PipelineRun&) = delete;
  PipelineRun& operator=(const PipelineRun&) = delete;

  void train();
  // With a schedule of forward_schedule().
  std::vector<Carry> evaluate();
  void give_up() { mail_.give_up(); }

 private:
  using Cells = std::map<std::pair<int, int>, PipelineCell>;

  void post_ahead(size_t index);
  void perform(const Action& action, size_t index);
  Carry forward(const Action& action);
  void backward(const Action& action, size_t index);
  void weight_backward(const Action& action, size_t index);
  void keep_output(const Action& action, const Carry& output);
  void tell_before(const Action& action, size_t index) const;
  Carry take_input(const Action& action);
  Carry take_output_gradient(const Action& action);
  void check_output(const Action& action, const Carry& output) const;
  void open(const Action& action) const;
  PipelineCell& cell(int stage, int micro);
  bool is_last_stage(int stage) const { return stage + 1 == schedule_.stages; }

  const Schedule& schedule_;
  const std::vector<Action>& list_;
  const PipelineWork& work_;
  std::shared_ptr<kernels::Deferred> later_;
  PipelineMail mail_;
  std::unique_ptr<Cells> cells_;
  size_t posted_ = 0;  // actions before it that receive are posted
};

// Forward alone, so that ranks work at the same time: the s-th stage runs micro-batch k in turn
// s + k.
Schedule forward_schedule(const Schedule& schedule, int micros);

}  // namespace braid::parallel
