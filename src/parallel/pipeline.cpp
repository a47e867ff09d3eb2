// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/error.h"
#include "parallel/pipeline_run.h"

namespace braid::parallel {

struct Pipeline::State {
  Schedule schedule;
  comm::Group axis;
  std::shared_ptr<kernels::Deferred> later;
};

namespace {

bool has_act(const Schedule& schedule, int rank, Act act) {
  const std::vector<Action>& list = schedule.lists[static_cast<size_t>(rank)];
  return std::any_of(list.begin(), list.end(), [&](const Action& a) { return a.act == act; });
}

void need_part(bool there, const std::string& what, const char* why, const char* fix) {
  if (!there) throw ConfigError({.what = what, .why = why, .fix = fix});
}

void check_group(const Schedule& schedule, const comm::Group& axis) {
  need_part(schedule.ranks == axis.size(),
            fmt::format("schedule {} is for {} ranks, group {} has {}", schedule.name,
                        schedule.ranks, axis.name(), axis.size()),
            "each rank of the group has a list of actions",
            "make the schedule with .ranks = group.size()");
}

void check_forward(const Schedule& schedule, int rank, const PipelineWork& work) {
  const std::vector<int> stages = schedule.stages_of(rank);
  const int first = stages.empty() ? 0 : stages.front();
  need_part(static_cast<bool>(work.forward),
            fmt::format("stage {} of rank {} has no function", first, rank),
            "a pipeline runs a stage by PipelineWork::forward", "set PipelineWork::forward");
  need_part(work.carried || schedule.stages == 1,
            fmt::format("{} stages, and nothing says what they carry", schedule.stages),
            "a rank makes room for what it receives before it comes",
            "set PipelineWork::carried to the shapes and types of what a stage gets");
  need_part(!has_act(schedule, rank, Act::gather) || (work.gather && work.release),
            fmt::format("schedule {} gathers weights, and nothing does it", schedule.name),
            "gather and release are the business of who holds the weights in pieces",
            "set PipelineWork::gather and release, or make the schedule with .gathers = false");
}

void check_training(const Schedule& schedule, int rank, const PipelineWork& work) {
  const bool holds_last = schedule.rank_of.back() == rank;
  need_part(work.loss || !holds_last,
            fmt::format("stage {}, the last one, has no loss", schedule.stages - 1),
            "the backward pass begins at the loss", "set PipelineWork::loss");
  need_part(work.update || !has_act(schedule, rank, Act::update),
            fmt::format("schedule {} updates weights within a run", schedule.name),
            "without a flush each micro-batch has its version of the weights",
            "run it by parallel::PipeDream, or take a schedule with flush");
}

// Gradients of weights wait while the scope lasts; after an error nothing is left of them.
class LaterScope {
 public:
  LaterScope(std::shared_ptr<kernels::Deferred> later, bool on) : later_(std::move(later)) {
    if (later_ == nullptr) return;
    before_ = later_->active();
    later_->set_active(on);
  }
  ~LaterScope() {
    if (later_ == nullptr) return;
    later_->set_active(before_);
    later_->clear();
  }
  LaterScope(const LaterScope&) = delete;
  LaterScope& operator=(const LaterScope&) = delete;

 private:
  std::shared_ptr<kernels::Deferred> later_;
  bool before_ = false;
};

// The other ranks wait for messages of one that fails: they are told.
template <class Body>
auto or_give_up(const comm::Group& axis, PipelineRun& run, Body body) {
  try {
    return body();
  } catch (...) {
    axis.abort();
    run.give_up();
    throw;
  }
}

}  // namespace

Pipeline::Pipeline(Schedule schedule, comm::Group axis, std::shared_ptr<kernels::Deferred> later)
    : state_(std::make_unique<State>()) {
  check(schedule);
  check_group(schedule, axis);
  need_part(later != nullptr || !schedule.splits_backward(),
            fmt::format("schedule {} splits the backward pass, the model does not", schedule.name),
            "gradients of weights come later only from layers that were told so",
            "give the Pipeline the kernels::Deferred of the model's layers");
  *state_ = {std::move(schedule), std::move(axis), std::move(later)};
}
Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

const Schedule& Pipeline::schedule() const { return state_->schedule; }

void Pipeline::run(const PipelineWork& work) {
  const State& state = *state_;
  check_forward(state.schedule, state.axis.rank(), work);
  check_training(state.schedule, state.axis.rank(), work);
  const LaterScope waits(state.later, state.schedule.splits_backward());
  PipelineRun run(state.schedule, state.axis, work, state.later);
  or_give_up(state.axis, run, [&] { run.train(); });
}

std::vector<Carry> Pipeline::forward(const PipelineWork& work, int micros) {
  const State& state = *state_;
  const Schedule schedule = forward_schedule(state.schedule, micros);
  check_forward(schedule, state.axis.rank(), work);
  const LaterScope off(state.later, false);
  PipelineRun run(schedule, state.axis, work, nullptr);
  return or_give_up(state.axis, run, [&] { return run.evaluate(); });
}

}  // namespace braid::parallel
