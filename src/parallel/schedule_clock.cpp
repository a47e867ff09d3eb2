// SPDX-License-Identifier: BSD-3-Clause
// A schedule on a virtual clock: exact for durations that are exact.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "braid/core/error.h"
#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

// Times are kept as multiples of 1 / scale, so that thirds of a second add up to whole ones.
class VirtualClock {
 public:
  VirtualClock(const Schedule& schedule, const Durations& durations)
      : schedule_(schedule), durations_(durations) {
    const auto cells = static_cast<size_t>(schedule.stages) * static_cast<size_t>(schedule.micros);
    forward_.resize(cells);
    gradient_.resize(cells);
    held_.resize(static_cast<size_t>(schedule.ranks));
    for (const int rank : schedule.rank_of) ++held_[static_cast<size_t>(rank)];
    if (durations.stage_share.empty())
      for (const int held : held_) scale_ = std::lcm(scale_, std::max(held, 1));
  }

  double scale() const { return scale_; }

  double length(const Action& action) const {
    const auto stage = static_cast<size_t>(action.stage);
    const double whole = of_act(action.act);
    if (!durations_.stage_share.empty()) return whole * durations_.stage_share.at(stage);
    const int parts = scale_ / held_[static_cast<size_t>(schedule_.rank_of[stage])];  // whole
    return whole * parts;
  }

  // When its inputs are there; none: not yet known.
  std::optional<double> ready(const Action& a) const {
    if (a.act == Act::forward)
      return a.stage == 0 ? std::optional(0.0) : arrival(forward_, a.stage - 1, a);
    if (a.act == Act::weight_backward) return gradient_[cell(a.stage, a.micro)];
    if (a.act != Act::backward && a.act != Act::input_backward) return 0.0;
    if (!forward_[cell(a.stage, a.micro)]) return std::nullopt;
    return a.stage + 1 == schedule_.stages ? std::optional(0.0)
                                           : arrival(gradient_, a.stage + 1, a);
  }

  void finish(const Action& a, double end) {
    if (a.act == Act::forward) forward_[cell(a.stage, a.micro)] = end;
    if (a.act == Act::backward || a.act == Act::input_backward)
      gradient_[cell(a.stage, a.micro)] = end;
  }

 private:
  using Times = std::vector<std::optional<double>>;

  size_t cell(int stage, int micro) const {
    return static_cast<size_t>(stage) * static_cast<size_t>(schedule_.micros) +
           static_cast<size_t>(micro);
  }

  std::optional<double> arrival(const Times& times, int from, const Action& at) const {
    const std::optional<double> made = times[cell(from, at.micro)];
    if (!made) return std::nullopt;
    return *made + (crosses(schedule_, std::min(from, at.stage)) ? durations_.message * scale_ : 0);
  }

  double of_act(Act act) const {
    if (act == Act::forward) return durations_.forward;
    if (act == Act::backward) return durations_.backward;
    if (act == Act::input_backward) return durations_.input_backward;
    return act == Act::weight_backward ? durations_.weight_backward : 0;
  }

  const Schedule& schedule_;
  const Durations& durations_;
  Times forward_, gradient_;
  std::vector<int> held_;
  int scale_ = 1;
};

void run_lists(const Schedule& schedule, VirtualClock& clock, Timeline& timeline) {
  std::vector<size_t> at(schedule.lists.size(), 0);
  std::vector<double> now(schedule.lists.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < at.size(); ++r)
      for (; at[r] < schedule.lists[r].size(); ++at[r], moved = true) {
        const Action& action = schedule.lists[r][at[r]];
        const std::optional<double> ready = clock.ready(action);
        if (!ready) break;
        const double begin = std::max(now[r], *ready);
        now[r] = begin + (computes(action.act) ? clock.length(action) : 0);
        clock.finish(action, now[r]);
        timeline.ranks[r].push_back({action, begin, now[r]});
      }
  }
  const std::string waiting = who_waits(schedule, at);
  if (!waiting.empty())
    throw ConfigError({.what = fmt::format("schedule {} never ends: {}", schedule.name, waiting),
                       .why = "each waits for what another one does later",
                       .fix = "move the actions that the others wait for to the front"});
}

void sum_rank(const std::vector<TimedAction>& timed, size_t rank, Timeline& timeline) {
  std::optional<double> first;
  double last = 0;
  int flying = 0;
  for (const TimedAction& t : timed) {
    if (!computes(t.action.act)) continue;
    if (!first) first = t.begin;
    last = t.end;
    timeline.busy[rank] += t.end - t.begin;
    if (t.action.act == Act::forward)
      timeline.in_flight[rank] = std::max(timeline.in_flight[rank], ++flying);
    if (t.action.act == Act::backward || t.action.act == Act::weight_backward) --flying;
  }
  timeline.span[rank] = last - first.value_or(0);
  timeline.makespan = std::max(timeline.makespan, last);
}

void rescale(Timeline& timeline, double scale) {
  for (std::vector<TimedAction>& timed : timeline.ranks)
    for (TimedAction& t : timed) {
      t.begin /= scale;
      t.end /= scale;
    }
  for (double& busy : timeline.busy) busy /= scale;
  for (double& span : timeline.span) span /= scale;
  timeline.makespan /= scale;
}

}  // namespace

std::string who_waits(const Schedule& schedule, const std::vector<size_t>& at) {
  std::string text;
  for (size_t r = 0; r < at.size(); ++r)
    if (at[r] < schedule.lists[r].size())
      text += fmt::format("{}rank {} waits at {} (action {})", text.empty() ? "" : ", ", r,
                          word_of(schedule.lists[r][at[r]]), at[r]);
  return text;
}

Timeline simulate(const Schedule& schedule, const Durations& durations) {
  Timeline timeline;
  const size_t ranks = schedule.lists.size();
  timeline.ranks.resize(ranks);
  timeline.busy.resize(ranks);
  timeline.span.resize(ranks);
  timeline.in_flight.resize(ranks);
  VirtualClock clock(schedule, durations);
  run_lists(schedule, clock, timeline);
  for (size_t r = 0; r < ranks; ++r) sum_rank(timeline.ranks[r], r, timeline);
  const double busy = std::accumulate(timeline.busy.begin(), timeline.busy.end(), 0.0);
  const double all = timeline.makespan * static_cast<double>(ranks);
  timeline.bubble = all > 0 ? (all - busy) / all : 0;
  rescale(timeline, clock.scale());
  return timeline;
}

}  // namespace braid::parallel
