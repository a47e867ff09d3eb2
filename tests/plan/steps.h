// SPDX-License-Identifier: BSD-3-Clause
// Layouts by hand: the FLOPs of an operator are its seconds, the bytes of a message milliseconds.
#pragma once
#include <map>
#include <vector>

#include "braid/parallel/schedule.h"
#include "braid/plan/simulate.h"
#include "support/expect.h"

namespace braid::plan::test {

using braid::test::contains;
using braid::test::error_of;

struct OpWords {
  bool backward = false, recomputed = false;
  std::string module = "layer";
};
inline memory::Operator op(double seconds, const OpWords& words = {}) {
  memory::Operator made;
  made.name = "aten::mm";
  made.flops = seconds;
  made.backward = words.backward;
  made.recomputed = words.recomputed;
  made.module = words.module;
  return made;
}

inline Message collective(const std::string& group, std::vector<int> ranks, double seconds,
                          int64_t from, int64_t until) {
  Message made;
  made.kind = comm::Kind::all_reduce;
  made.group = group;
  made.ranks = std::move(ranks);
  made.bytes = static_cast<int64_t>(seconds * 1000);
  made.from = from;
  made.until = until;
  return made;
}

struct CopyWords {
  bool to_host = false, beside = false;
};
inline Copy copy(int64_t op, int64_t seconds, const CopyWords& words) {
  return {.op = op, .bytes = seconds * 1000, .to_host = words.to_host, .beside = words.beside};
}

inline Prices prices() {
  Prices made;
  made.op = [](const memory::Operator& o) { return OpCost{.seconds = o.flops}; };
  made.message = [](const Message& m, int) { return static_cast<double>(m.bytes) * 1e-3; };
  made.copy = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-3; };
  made.cluster.gpus_per_node = 4;
  return made;
}

inline LayoutRun one_rank(RankTrace trace, int64_t world = 1) {
  LayoutRun layout;
  layout.world = world;
  layout.ranks.resize(1);
  layout.ranks[0].trace = std::move(trace);
  layout.kind_of = {0};
  return layout;
}

inline double sum(const TimeParts& p) {
  return p.forward + p.backward + p.recompute + p.optimizer + p.communication + p.copies +
         p.bubble + p.launch + p.data + p.checkpoint;
}

inline double seconds_of(const parallel::Action& action, const parallel::Schedule& schedule,
                         const parallel::Durations& durations) {
  const double share = static_cast<double>(schedule.ranks) / schedule.stages;
  switch (action.act) {
    case parallel::Act::forward:
      return durations.forward * share;
    case parallel::Act::backward:
      return durations.backward * share;
    case parallel::Act::input_backward:
      return durations.input_backward * share;
    default:
      return durations.weight_backward * share;
  }
}

// The list of one rank of a schedule as its trace.
class ScheduleTrace {
 public:
  ScheduleTrace(const parallel::Schedule& schedule, const parallel::Durations& durations)
      : schedule_(schedule), durations_(durations) {}

  RankTrace of(int rank) {
    trace_ = {};
    posted_.clear();
    for (const parallel::Action& action : schedule_.lists[static_cast<size_t>(rank)]) add(action);
    return std::move(trace_);
  }

 private:
  using Act = parallel::Act;

  void add(const parallel::Action& a) {
    const bool gradient = a.act == Act::send_gradient || a.act == Act::recv_gradient;
    if (parallel::computes(a.act)) return compute(a);
    if (!parallel::sends(a.act) && !parallel::receives(a.act)) return;
    const int other =
        a.act == Act::send_activation || a.act == Act::recv_gradient ? a.stage + 1 : a.stage - 1;
    const int sender = parallel::sends(a.act) ? a.stage : other;
    Message made;
    made.kind = parallel::sends(a.act) ? comm::Kind::send : comm::Kind::recv;
    made.group = "pipeline";
    for (int r = 0; r < schedule_.ranks; ++r) made.ranks.push_back(r);
    made.peer = schedule_.rank_of[static_cast<size_t>(other)];
    made.tag = 2 * sender + (gradient ? 1 : 0);
    made.bytes = static_cast<int64_t>(durations_.message * 1000);
    made.from = made.until = static_cast<int64_t>(trace_.operators.size());
    if (parallel::sends(a.act)) made.until = made.from + 1;
    if (parallel::receives(a.act)) posted_[{gradient, a.stage, a.micro}] = trace_.messages.size();
    trace_.messages.push_back(made);
  }

  void compute(const parallel::Action& a) {
    const bool forward = a.act == Act::forward;
    const auto here = static_cast<int64_t>(trace_.operators.size());
    if (const auto mail = posted_.find({!forward, a.stage, a.micro}); mail != posted_.end()) {
      if (a.act != Act::weight_backward) trace_.messages[mail->second].until = here;
    }
    trace_.operators.push_back(
        op(seconds_of(a, schedule_, durations_), {.backward = !forward, .module = "layer"}));
    trace_.regions.push_back({forward ? "forward" : "backward", a.micro, here, here + 1});
  }

  const parallel::Schedule& schedule_;
  parallel::Durations durations_;
  RankTrace trace_;
  std::map<std::tuple<bool, int, int>, size_t> posted_;
};

inline LayoutRun layout_of(const parallel::Schedule& schedule,
                           const parallel::Durations& durations) {
  LayoutRun layout;
  layout.world = schedule.ranks;
  layout.options.mesh.pipeline = schedule.ranks;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankRun& run = layout.ranks.emplace_back();
    run.rank = run.stage = rank;
    run.trace = ScheduleTrace(schedule, durations).of(rank);
    layout.kind_of.push_back(static_cast<size_t>(rank));
  }
  return layout;
}

}  // namespace braid::plan::test
