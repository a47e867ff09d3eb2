// SPDX-License-Identifier: BSD-3-Clause
#include "train/staged.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <utility>

#include "braid/core/observe.h"
#include "braid/core/region.h"

namespace braid::train {
namespace {

// In the widest dtype of all: none of them loses anything.
at::Tensor packed(const Carry& carry) {
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : carry) flat.push_back(tensor.flatten());
  return at::cat(flat);
}

Carry unpacked(const at::Tensor& flat, const Carry& like) {
  Carry carry;
  int64_t first = 0;
  for (const at::Tensor& tensor : like) {
    const at::Tensor own = flat.narrow(0, first, tensor.numel()).view(tensor.sizes());
    carry.push_back(own.to(tensor.scalar_type()));
    first += tensor.numel();
  }
  return carry;
}

// What runs around blocks takes one tensor and gives one: several travel as one through it, so that
// their gradients come and go together.
template <class Forward>
Carry run_as_one(BlockRunner* runner, const Carry& input, const Forward& forward) {
  if (runner == nullptr) return forward(input);
  const bool many = input.size() > 1;
  Carry output;
  const at::Tensor flat =
      runner->run("", many ? packed(input) : input.front(), [&](const at::Tensor& in) {
        output = forward(many ? unpacked(in, input) : Carry{in});
        return output.size() > 1 ? packed(output) : output.front();
      });
  return output.size() > 1 ? unpacked(flat, output) : Carry{flat};
}

// Backward passes of a rank, those of weights alone counted, too.
struct BackwardPasses {
  int all = 0;
  int last_of_first = 0;  // which of them is the last that reaches the input of the first stage
};

BackwardPasses passes_of(const parallel::Schedule& schedule, int rank) {
  BackwardPasses passes;
  for (const parallel::Action& action : schedule.lists[static_cast<size_t>(rank)]) {
    if (!parallel::computes(action.act) || action.act == parallel::Act::forward) continue;
    ++passes.all;
    if (action.stage == 0 && action.act != parallel::Act::weight_backward)
      passes.last_of_first = passes.all;
  }
  return passes;
}

}  // namespace

// The weight that embeds tokens on the first stage and scores them on the last one. Its values go
// to the last stage with the first micro-batch, its gradient comes back before the last backward
// pass of the first stage. A group of its own: on some networks messages of one pair of ranks must
// be received in the order in which they were sent.
class Staged::Tie {
 public:
  Tie(const Param& param, const comm::Group& pair, bool first)
      : weight_(param.tensor), pair_(pair), first_(first) {}

  void begin(bool with_gradient) {
    const at::NoGradGuard no_grad;
    sent_ = false;
    if (!first_) {
      value_ = pair_.recv(weight_.detach(), other());
    } else if (with_gradient) {
      const MemoryScope buffers(MemoryKind::communication);
      incoming_ = at::empty(weight_.sizes(), weight_.options().dtype(gradient_dtype(weight_)));
      gradient_ = pair_.recv(incoming_, other());
    }
  }

  // While the weights of the stage are there.
  void within(bool is_first, bool is_last) {
    if (first_ && is_first && !std::exchange(sent_, true))
      pair_.send(weight_.detach().contiguous(), other()).wait();
    if (!first_ && is_last) value_.wait();
  }

  void add_gradient() {
    if (!first_) return;
    const at::NoGradGuard no_grad;
    gradient_.wait();
    at::Tensor& grad = weight_.mutable_grad();
    if (grad.defined())
      grad.add_(incoming_);
    else
      grad = incoming_;
    incoming_ = at::Tensor();
  }

  void end() {
    if (first_) return;
    const at::NoGradGuard no_grad;
    pair_.send(weight_.grad().contiguous(), other()).wait();
    weight_.mutable_grad().reset();
  }

 private:
  int other() const { return 1 - pair_.rank(); }
  at::Tensor weight_, incoming_;
  comm::Group pair_;
  bool first_, sent_ = false;
  comm::Pending value_, gradient_;
};

Staged::Staged(nn::Model& model, const RunOptions& options, const Ranks& ranks)
    : model_(model),
      stages_(stages_of(options, ranks.mesh, model)),
      axis_(ranks.pipeline()),
      schedule_([options, ranks = axis_.size()](int64_t micros) {
        return schedule_of(options, ranks, micros);
      }),
      later_(ranks.later),
      planned_(micros_of(options.train, ranks.mesh.batch_ranks())),
      fixed_(!options.parallel.schedule_file.empty()) {
  const int first = stages_.rank_of.front(), last = stages_.rank_of.back();
  const auto tied = model.tied();
  if (first == last || !tied || (axis_.rank() != first && axis_.rank() != last)) return;
  tie_ = std::make_unique<Tie>(*tied, axis_.split({first, last}, "tied"), axis_.rank() == first);
}

Staged::~Staged() = default;

int Staged::output_rank() const { return stages_.rank_of.back(); }
bool Staged::has_last() const { return axis_.rank() == output_rank(); }

int64_t Staged::micros(int64_t filled) const { return fixed_ ? planned_ : filled; }

parallel::Pipeline& Staged::pipeline(int64_t micros) {
  const auto found = pipelines_.find(micros);
  if (found != pipelines_.end()) return found->second;
  return pipelines_.try_emplace(micros, schedule_(micros), axis_, later_).first->second;
}

Carry Staged::run_stage(int stage, const Carry& carry, const Micro& micro) {
  const bool first = stage == 0, last = stage + 1 == static_cast<int>(stages_.blocks.size());
  const Range& blocks = stages_.blocks[static_cast<size_t>(stage)];
  const auto forward = [&](const Carry& in) {
    if (tie_ != nullptr) tie_->within(first, last);
    return model_.stage(blocks, in, micro.pass);
  };
  return run_as_one(micro.pass.blocks, first ? Carry{micro.input} : carry, forward);
}

void Staged::run(const std::vector<Micro>& micros, const StagedHooks& hooks) {
  const auto at = [&](int micro) -> const Micro& { return micros[static_cast<size_t>(micro)]; };
  parallel::Pipeline& pipeline = this->pipeline(static_cast<int64_t>(micros.size()));
  const BackwardPasses passes = passes_of(pipeline.schedule(), axis_.rank());
  int done = 0;
  if (tie_ != nullptr) tie_->begin(/*with_gradient=*/true);
  pipeline.run({.forward =
                    [&](int stage, const Carry& carry, int micro) {
                      const Region here(regions::forward);
                      const memory::SavedScope kept(hooks.stash);
                      return run_stage(stage, carry, at(micro));
                    },
                .loss =
                    [&](const Carry& output, int micro) {
                      const Region here(regions::forward);
                      return hooks.loss(output.at(0), at(micro));
                    },
                .carried = [&](int, int micro) { return model_.carried(at(micro).input); },
                .before_backward =
                    [&](int, int, bool) {
                      ++done;
                      if (hooks.before_backward) hooks.before_backward(done == passes.all);
                      if (tie_ != nullptr && done == passes.last_of_first) tie_->add_gradient();
                    },
                .device = micros.front().input.device()});
  if (tie_ != nullptr) tie_->end();
}

at::Tensor Staged::forward(const at::Tensor& input, const nn::Pass& pass) {
  const Micro whole{.input = input, .target = {}, .pass = pass};
  if (tie_ != nullptr) tie_->begin(/*with_gradient=*/false);
  const std::vector<Carry> outputs =
      pipeline(planned_).forward({.forward = [&](int stage, const Carry& carry,
                                                 int) { return run_stage(stage, carry, whole); },
                                  .loss = {},
                                  .carried = [&](int, int) { return model_.carried(input); },
                                  .device = input.device()},
                                 1);
  return has_last() ? outputs.at(0).at(0) : at::Tensor();
}

}  // namespace braid::train
