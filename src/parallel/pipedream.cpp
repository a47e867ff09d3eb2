// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/pipedream.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "braid/core/error.h"
#include "braid/core/observe.h"

namespace braid::parallel {

struct PipeDream::State {
  using Values = std::vector<at::Tensor>;  // of each parameter

  std::unique_ptr<Pipeline> pipeline;
  int stage = 0;
  std::vector<int> version_of;       // of each micro-batch
  std::vector<Param> given, newest;  // those of the model, and those that are updated
  std::vector<VersionUse> log;
  int most = 0;

  // While a run lasts.
  std::map<int, Values> versions;
  std::map<int, int> users;    // of each version: micro-batches that are not yet backward
  std::map<int, int> met;      // version of the forward pass, by micro-batch
  std::optional<int> running;  // micro-batch of the last backward pass
  int number = 0;              // of the newest version

  void begin();
  void end();
  void use(int version);
  void forward(int micro);
  void backward(int micro);
  void leave_backward();
  void update(int micro, const std::function<void(int)>& apply);
  Values values() const;
};

namespace {

void check_flushless(const ScheduleOptions& options) {
  if (options.kind == ScheduleKind::pipedream || options.kind == ScheduleKind::pipedream_2bw)
    return;
  throw ConfigError(
      {.what = fmt::format("PipeDream with schedule {}", to_text(options.kind)),
       .why = "it keeps versions of weights for schedules without a flush",
       .fix = "take ScheduleKind::pipedream or pipedream_2bw, or run it by Pipeline"});
}

// A leaf of its own with the same memory: the graphs of micro-batches under way do not see that it
// changes.
Param twin(const Param& param) {
  Param other = param;
  other.tensor = at::Tensor(param.tensor.variable_data());
  other.tensor.requires_grad_(param.tensor.requires_grad());
  return other;
}

}  // namespace

PipeDream::State::Values PipeDream::State::values() const {
  Values all;
  for (const Param& param : newest) all.push_back(param.tensor.detach());
  return all;
}

void PipeDream::State::begin() {
  for (size_t i = 0; i < given.size(); ++i) newest[i].tensor.set_data(given[i].tensor.detach());
  log.clear();
  users.clear();
  met.clear();
  running.reset();
  number = 0;
  most = 1;
  for (const int version : version_of) ++users[version];
  versions = {{0, values()}};
}

void PipeDream::State::end() {
  leave_backward();
  use(number);
  versions.clear();
}

void PipeDream::State::use(int version) {
  const Values& data = versions.at(version);
  for (size_t i = 0; i < given.size(); ++i) given[i].tensor.set_data(data[i]);
}

void PipeDream::State::forward(int micro) {
  leave_backward();
  const int version = version_of[static_cast<size_t>(micro)];
  use(version);
  met[micro] = version;
}

void PipeDream::State::backward(int micro) {
  leave_backward();
  const int version = version_of[static_cast<size_t>(micro)];
  use(version);
  log.push_back({stage, micro, met.at(micro), version});
  running = micro;
}

// A version that no micro-batch will ask for goes.
void PipeDream::State::leave_backward() {
  if (!running) return;
  const int version = version_of[static_cast<size_t>(*running)];
  met.erase(*running);
  running.reset();
  if (--users[version] > 0 || version == number) return;
  use(number);  // the model must not be what keeps it
  versions.erase(version);
}

void PipeDream::State::update(int micro, const std::function<void(int)>& apply) {
  leave_backward();
  const bool kept = users[number] > 0;
  for (size_t i = 0; i < given.size(); ++i) {
    const at::Tensor& gradient = given[i].tensor.grad();
    if (!gradient.defined()) continue;
    const at::NoGradGuard no_grad;
    const MemoryScope weights(MemoryKind::parameter);
    if (kept) newest[i].tensor.set_data(newest[i].tensor.detach().clone());
    newest[i].tensor.mutable_grad() = gradient;
    given[i].tensor.mutable_grad().reset();
  }
  apply(micro);
  for (const Param& param : newest) param.tensor.mutable_grad().reset();
  if (!kept) versions.erase(number);
  versions[++number] = values();
  most = std::max(most, static_cast<int>(versions.size()));
}

PipeDream::PipeDream(const ScheduleOptions& options, const comm::Group& axis,
                     std::vector<Param> params)
    : state_(std::make_unique<State>()) {
  check_flushless(options);
  State& state = *state_;
  state.pipeline = std::make_unique<Pipeline>(make_schedule(options), axis);
  state.stage = schedule().stages_of(axis.rank()).front();
  state.version_of.resize(static_cast<size_t>(schedule().micros));
  for (const VersionUse& use : versions_of(schedule(), options))
    if (use.stage == state.stage) state.version_of[static_cast<size_t>(use.micro)] = use.forward;
  state.given = std::move(params);
  for (const Param& param : state.given) state.newest.push_back(twin(param));
}
PipeDream::~PipeDream() = default;
PipeDream::PipeDream(PipeDream&&) noexcept = default;
PipeDream& PipeDream::operator=(PipeDream&&) noexcept = default;

const Schedule& PipeDream::schedule() const { return state_->pipeline->schedule(); }
const std::vector<Param>& PipeDream::params() const { return state_->newest; }
const std::vector<VersionUse>& PipeDream::log() const { return state_->log; }
int PipeDream::most_versions() const { return state_->most; }

void PipeDream::run(PipelineWork work, const std::function<void(int micro)>& update) {
  State& state = *state_;
  state.begin();
  if (work.forward)
    work.forward = [&state, inner = work.forward](int stage, const Carry& carry, int micro) {
      state.forward(micro);
      return inner(stage, carry, micro);
    };
  work.before_backward = [&state, inner = work.before_backward](int stage, int micro, bool last) {
    state.backward(micro);
    if (inner) inner(stage, micro, last);
  };
  work.update = [&](int, int micro) { state.update(micro, update); };
  state.pipeline->run(work);
  state.end();
}

}  // namespace braid::parallel
