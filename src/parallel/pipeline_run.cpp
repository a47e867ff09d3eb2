// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/pipeline_run.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/region.h"

namespace braid::parallel {

struct PipelineCell {
  Carry input;                       // leaves that collect the gradients to hand back
  torch::autograd::edge_list roots;  // where backward begins; the output itself need not stay
  std::vector<size_t> root_of;       // the tensor of the output that a root belongs to
  at::Tensor seed;                   // of the last stage: the gradient of the loss
  Carry output;                      // until it is sent or the next stage takes it
  Carry input_gradient;              // the same, for the stage before
};

namespace {

bool has_gradient(const at::Tensor& tensor) { return c10::isFloatingType(tensor.scalar_type()); }

std::string spec_text(const CarrySpec& spec) {
  return fmt::format("{} [{}]", c10::toString(spec.dtype), fmt::join(spec.shape, ", "));
}

std::string specs_text(const std::vector<CarrySpec>& specs) {
  std::vector<std::string> words;
  for (const CarrySpec& spec : specs) words.push_back(spec_text(spec));
  return words.empty() ? "nothing" : fmt::format("{}", fmt::join(words, ", "));
}

std::vector<CarrySpec> specs_of(const Carry& carry) {
  std::vector<CarrySpec> specs;
  for (const at::Tensor& tensor : carry)
    specs.push_back({tensor.defined() ? tensor.sizes().vec() : std::vector<int64_t>{},
                     tensor.defined() ? tensor.scalar_type() : c10::ScalarType::Undefined});
  return specs;
}

// Gradients that came back to the leaves; one that no operation used gets zeros, since the other
// rank waits for it.
Carry gradients_of(const Carry& leaves) {
  Carry gradients;
  for (const at::Tensor& leaf : leaves) {
    at::Tensor& gradient = gradients.emplace_back();
    if (!has_gradient(leaf)) continue;
    gradient = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf.detach());
    leaf.mutable_grad().reset();
  }
  return gradients;
}

PipelineMailOptions mail_options(const PipelineWork& work, size_t window) {
  return {.carried = work.carried, .device = work.device, .window = window};
}

bool trains(const Schedule& schedule) {
  for (const Action& action : schedule.lists.front())
    if (computes(action.act) && action.act != Act::forward) return true;
  return false;
}

}  // namespace

PipelineRun::PipelineRun(const Schedule& schedule, const comm::Group& axis,
                         const PipelineWork& work, std::shared_ptr<kernels::Deferred> later)
    : schedule_(schedule),
      list_(schedule.lists[static_cast<size_t>(axis.rank())]),
      work_(work),
      later_(std::move(later)),
      mail_(schedule, axis, mail_options(work, trains(schedule) ? 0 : 2)),
      cells_(std::make_unique<Cells>()) {}

PipelineRun::~PipelineRun() = default;

PipelineCell& PipelineRun::cell(int stage, int micro) { return (*cells_)[{stage, micro}]; }

// Receives that stand before the next pass are under way while this one runs.
void PipelineRun::post_ahead(size_t index) {
  posted_ = std::max(posted_, index);
  for (; posted_ < list_.size(); ++posted_) {
    const Action& action = list_[posted_];
    if (posted_ > index && computes(action.act)) return;
    if (receives(action.act)) mail_.post(action);
  }
}

void PipelineRun::train() {
  for (size_t i = 0; i < list_.size(); ++i) {
    post_ahead(i);
    perform(list_[i], i);
  }
  mail_.finish();
}

void PipelineRun::perform(const Action& action, size_t index) {
  PipelineCell& here = cell(action.stage, action.micro);
  switch (action.act) {
    case Act::forward:
      keep_output(action, forward(action));
      return;
    case Act::backward:
    case Act::input_backward:
      return backward(action, index);
    case Act::weight_backward:
      return weight_backward(action, index);
    case Act::send_activation:
      return mail_.send(action, std::exchange(here.output, {}));
    case Act::send_gradient:
      mail_.send(action, std::exchange(here.input_gradient, {}));
      return;
    case Act::recv_activation:
    case Act::recv_gradient:
      return mail_.post(action);
    case Act::gather:
      return work_.gather(action.stage);
    case Act::release:
      return work_.release(action.stage);
    case Act::update:
      return work_.update(action.stage, action.micro);
  }
}

// What is computed now belongs to this stage and micro-batch; also in the backward pass, which may
// compute parts of the forward pass again.
void PipelineRun::open(const Action& action) const {
  if (later_ != nullptr)
    later_->open(static_cast<int64_t>(action.stage) * schedule_.micros + action.micro);
}

Carry PipelineRun::take_input(const Action& action) {
  if (action.stage == 0) return {};
  if (crosses(schedule_, action.stage - 1))
    return mail_.take({Act::recv_activation, action.stage, action.micro});
  return std::exchange(cell(action.stage - 1, action.micro).output, {});
}

Carry PipelineRun::forward(const Action& action) {
  const Carry input = take_input(action);
  if (at::GradMode::is_enabled()) {
    for (const at::Tensor& tensor : input)
      if (has_gradient(tensor)) tensor.requires_grad_();
    cell(action.stage, action.micro).input = input;
  }
  open(action);
  Carry output = work_.forward(action.stage, input, action.micro);
  if (!is_last_stage(action.stage)) check_output(action, output);
  return output;
}

void PipelineRun::check_output(const Action& action, const Carry& output) const {
  const auto said = work_.carried(action.stage + 1, action.micro), given = specs_of(output);
  if (said == given) return;
  throw ConfigError(
      {.what =
           fmt::format("stage {} gave {} for micro-batch {}, but stage {} expects {}", action.stage,
                       specs_text(given), action.micro, action.stage + 1, specs_text(said)),
       .why = "a rank makes room for what it receives before it comes",
       .fix = "let PipelineWork::carried say what PipelineWork::forward gives"});
}

void PipelineRun::keep_output(const Action& action, const Carry& output) {
  PipelineCell& here = cell(action.stage, action.micro);
  Carry ends = output;
  if (is_last_stage(action.stage)) {
    ends = {work_.loss(output, action.micro)};
    here.seed = at::ones_like(ends.front().detach());
  }
  for (size_t i = 0; i < ends.size(); ++i) {
    if (!ends[i].requires_grad()) continue;
    here.roots.push_back(torch::autograd::impl::gradient_edge(ends[i]));
    here.root_of.push_back(i);
  }
  if (is_last_stage(action.stage)) return;
  for (const at::Tensor& tensor : output) here.output.push_back(tensor.detach());
}

Carry PipelineRun::take_output_gradient(const Action& action) {
  if (is_last_stage(action.stage)) return {cell(action.stage, action.micro).seed};
  if (crosses(schedule_, action.stage))
    return mail_.take({Act::recv_gradient, action.stage, action.micro});
  return std::exchange(cell(action.stage + 1, action.micro).input_gradient, {});
}

void PipelineRun::tell_before(const Action& action, size_t index) const {
  if (!work_.before_backward) return;
  const bool last = std::none_of(
      list_.begin() + static_cast<ptrdiff_t>(index) + 1, list_.end(),
      [&](const Action& other) { return other.act == action.act && other.stage == action.stage; });
  work_.before_backward(action.stage, action.micro, last);
}

void PipelineRun::backward(const Action& action, size_t index) {
  PipelineCell& here = cell(action.stage, action.micro);
  {
    const Carry all = take_output_gradient(action);
    torch::autograd::variable_list gradients;
    for (const size_t i : here.root_of) gradients.push_back(all[i]);
    const auto roots = std::exchange(here.roots, {});
    tell_before(action, index);
    open(action);
    const Region here(regions::backward);
    if (!roots.empty())
      torch::autograd::Engine::get_default_engine().execute(
          roots, gradients, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
  }
  Carry gradient = gradients_of(here.input);
  here = {};  // the graph goes
  here.input_gradient = std::move(gradient);
}

void PipelineRun::weight_backward(const Action& action, size_t index) {
  tell_before(action, index);
  open(action);
  const Region here(regions::backward);
  later_->run(later_->key());
}

std::vector<Carry> PipelineRun::evaluate() {
  const at::NoGradGuard no_grad;
  std::vector<Carry> outputs;
  for (size_t i = 0; i < list_.size(); ++i) {
    post_ahead(i);
    const Action& action = list_[i];
    if (action.act != Act::forward) {
      perform(action, i);
      continue;
    }
    Carry output = forward(action);
    if (is_last_stage(action.stage))
      outputs.push_back(std::move(output));
    else
      cell(action.stage, action.micro).output = std::move(output);
  }
  mail_.finish();
  return outputs;
}

Schedule forward_schedule(const Schedule& schedule, int micros) {
  Schedule alone = schedule;
  alone.name = schedule.name + " forward";
  alone.micros = micros;
  bool gathers = false;
  for (const std::vector<Action>& list : schedule.lists)
    for (const Action& action : list) gathers = gathers || action.act == Act::gather;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::vector<Action>& list = alone.lists[static_cast<size_t>(rank)];
    list.clear();
    int there = -1;  // stage whose weights are gathered
    for (int turn = 0; turn < micros + schedule.stages - 1; ++turn)
      for (const int stage : schedule.stages_of(rank)) {
        const int micro = turn - stage;
        if (micro < 0 || micro >= micros) continue;
        if (gathers && there != stage) {
          if (there >= 0) list.push_back({Act::release, there, micro});
          list.push_back({Act::gather, stage, micro});
          there = stage;
        }
        if (stage > 0 && crosses(schedule, stage - 1))
          list.push_back({Act::recv_activation, stage, micro});
        list.push_back({Act::forward, stage, micro});
        if (crosses(schedule, stage)) list.push_back({Act::send_activation, stage, micro});
      }
    if (there >= 0) list.push_back({Act::release, there, 0});
  }
  return alone;
}

}  // namespace braid::parallel
