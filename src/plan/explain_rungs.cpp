// SPDX-License-Identifier: BSD-3-Clause
#include "plan/explain_rungs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace braid::plan {
namespace {

using memory::Again;

class Ladder {
 public:
  Ladder(const Request& request, const Base& base)
      : request_(request), base_(base), placed_(arrangements_of(request, base).all) {
    const auto levels = recompute_levels(base.options, base.blocks);
    attention_ = std::find(levels.begin(), levels.end(), Again::attention) != levels.end();
    whole_ = levels.back();
  }

  std::vector<Rung> rungs() const {
    const Again some = attention_ ? Again::attention : Again::none;
    std::vector<Rung> all;
    all.push_back({"Does one replica fit on one GPU?", flat(0, Again::none), no_flat()});
    if (many())
      all.push_back(
          {"And with the optimizer's states in pieces (ZeRO-1)?", flat(1, Again::none), no_flat()});
    if (attention_)
      all.push_back({"And with attention computed again?", flat(many() ? 1 : 0, some), no_flat()});
    if (many())
      all.push_back({"And with gradients in pieces, too (ZeRO-2)?", flat(2, some), no_flat()});
    if (whole_ == Again::blocks)
      all.push_back(
          {"And with whole blocks computed again?", flat(many() ? 2 : 0, whole_), no_flat()});
    if (many()) {
      all.push_back({"And with weights in pieces, too (ZeRO-3)?", flat(3, whole_), no_flat()});
      all.push_back({"And with each layer shared by GPUs of a node (tensor)?", tensor(),
                     "no number of them within a node divides its heads"});
      all.push_back({"And with blocks shared out, a stage each (pipeline)?", pipeline(),
                     "its blocks cannot be divided over this number of GPUs"});
    }
    if (request_.offload)
      all.push_back(
          {"And with states and activations on the host (offload)?", offload(), no_flat()});
    return all;
  }

 private:
  bool many() const { return request_.gpus > 1; }
  std::string no_flat() const {
    return fmt::format("a global batch of {} does not divide by {} GPUs", base_.batch,
                       request_.gpus);
  }

  // The config's own micro-batch, or the smallest: what fits at all is asked first.
  Choice choice_at(const Arrangement& placed, Again again) const {
    Choice choice{.mesh = placed.mesh, .zero = placed.zero};
    choice.recompute = again;
    const int64_t said = base_.options.train.micro_batch.value_or(1);
    choice.micro_batch = placed.rows % said == 0 ? said : 1;
    choice.schedule = parallel::ScheduleKind::one_f_one_b;
    return choice;
  }

  template <class Wanted>
  std::vector<Choice> where(const Wanted& wanted, Again again) const {
    std::vector<Choice> found;
    for (const Arrangement& placed : placed_)
      if (wanted(placed.mesh, placed.zero)) found.push_back(choice_at(placed, again));
    return found;
  }

  // All GPUs share the batch. Pieces lie within a node where that is enough, else over all.
  std::vector<Choice> flat(int64_t zero, Again again) const {
    const int64_t node = std::min(request_.cluster.gpus_per_node, request_.gpus);
    return where(
        [&](const parallel::MeshOptions& mesh, int64_t stage) {
          const int64_t shard = mesh.shard.value_or(1);
          return stage == zero && mesh.data.value_or(1) * shard == request_.gpus &&
                 (zero == 0 || shard == request_.gpus || (zero > 1 && shard == node));
        },
        again);
  }

  bool sharded_all(const parallel::MeshOptions& mesh, int64_t stage, int64_t wanted) const {
    if (mesh.data.value_or(1) * mesh.shard.value_or(1) == 1) return stage == 0;
    return stage == wanted && mesh.data.value_or(1) == 1;
  }

  std::vector<Choice> tensor() const {
    return where(
        [&](const parallel::MeshOptions& mesh, int64_t stage) {
          return mesh.tensor > 1 && mesh.tensor <= request_.cluster.gpus_per_node &&
                 mesh.context * mesh.pipeline * mesh.expert == 1 && sharded_all(mesh, stage, 3);
        },
        whole_);
  }

  // Within stages, tensor over as much of a node as the heads allow.
  std::vector<Choice> pipeline() const {
    int64_t widest = 1;
    for (const Choice& choice : tensor()) widest = std::max(widest, choice.mesh.tensor);
    return where(
        [&](const parallel::MeshOptions& mesh, int64_t stage) {
          return mesh.pipeline > 1 && mesh.context * mesh.expert == 1 &&
                 (mesh.tensor == widest || mesh.tensor == 1) && sharded_all(mesh, stage, 1);
        },
        whole_);
  }

  std::vector<Choice> offload() const {
    std::vector<Choice> found;
    for (const auto& what :
         std::vector<std::vector<std::string>>{{"optimizer"},
                                               {"optimizer", "activations"},
                                               {"optimizer", "parameters", "activations"}}) {
      const bool weights = what.size() == 3;
      for (Choice choice : flat(many() || weights ? 3 : 0, whole_)) {
        choice.offload = what;
        found.push_back(choice);
      }
    }
    return found;
  }

  const Request& request_;
  const Base& base_;
  const std::vector<Arrangement> placed_;
  bool attention_ = false;
  Again whole_ = Again::none;
};

}  // namespace

std::vector<Rung> rungs_of(const Request& request, const Base& base) {
  return Ladder(request, base).rungs();
}

std::vector<std::string> sets_of(const Choice& choice) {
  std::vector<std::string> sets;
  const auto axis = [&](const char* name, int64_t size) {
    if (size > 1) sets.push_back(fmt::format("--set mesh.{}={}", name, size));
  };
  axis("data", choice.mesh.data.value_or(1));
  axis("shard", choice.mesh.shard.value_or(1));
  axis("tensor", choice.mesh.tensor);
  axis("context", choice.mesh.context);
  axis("pipeline", choice.mesh.pipeline);
  axis("expert", choice.mesh.expert);
  if (choice.zero > 0) sets.push_back(fmt::format("--set train.zero={}", choice.zero));
  constexpr const char* again[] = {"none", "blocks", "attention", "matmuls", "budget"};
  if (choice.recompute != Again::none)
    sets.push_back(
        fmt::format("--set memory.recompute={}", again[static_cast<size_t>(choice.recompute)]));
  sets.push_back(fmt::format("--set train.micro_batch={}", choice.micro_batch));
  if (choice.mesh.pipeline > 1)
    sets.push_back(fmt::format("--set parallel.schedule={}", to_text(choice.schedule)));
  if (!choice.precision.empty())
    sets.push_back(fmt::format("--set train.precision={}", choice.precision));
  if (!choice.offload.empty())
    sets.push_back(fmt::format("--set 'memory.offload=[{}]'", fmt::join(choice.offload, ",")));
  return sets;
}

}  // namespace braid::plan
