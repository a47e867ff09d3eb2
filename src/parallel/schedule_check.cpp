// SPDX-License-Identifier: BSD-3-Clause
// What can be said of a schedule without running it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

void check_shape(const Schedule& s) {
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    refuse_schedule(s,
                    {what, "a schedule has a list for each rank and a rank for each stage", fix});
  };
  if (s.ranks < 1 || s.stages < 1 || s.micros < 1)
    refuse(fmt::format("ranks = {}, stages = {}, micros = {}", s.ranks, s.stages, s.micros),
           "set each to 1 or more");
  if (s.rank_of.size() != static_cast<size_t>(s.stages))
    refuse(fmt::format("rank_of has {} entries for stages = {}", s.rank_of.size(), s.stages),
           fmt::format("give it {} entries", s.stages));
  if (s.lists.size() != static_cast<size_t>(s.ranks))
    refuse(fmt::format("{} lists for ranks = {}", s.lists.size(), s.ranks),
           fmt::format("give it {} lists", s.ranks));
  for (size_t stage = 0; stage < s.rank_of.size(); ++stage)
    if (s.rank_of[stage] < 0 || s.rank_of[stage] >= s.ranks)
      refuse(fmt::format("stage {} is on rank {} of {}", stage, s.rank_of[stage], s.ranks),
             fmt::format("set it to 0 ... {}", s.ranks - 1));
}

void check_bounds(const Schedule& s, int rank, size_t index, const Action& a) {
  const bool known = a.stage >= 0 && a.stage < s.stages && a.micro >= 0 && a.micro < s.micros;
  if (!known)
    refuse_schedule(s, {fmt::format("{}: no such stage or micro-batch", place_of(rank, index, a)),
                        "stages and micro-batches count from 0",
                        fmt::format("stages are 0 ... {}, micro-batches 0 ... {}", s.stages - 1,
                                    s.micros - 1)});
  const int owner = s.rank_of[static_cast<size_t>(a.stage)];
  if (owner != rank)
    refuse_schedule(
        s, {fmt::format("{}: stage {} is on rank {}", place_of(rank, index, a), a.stage, owner),
            "a rank runs its own stages only",
            fmt::format("move it to the list of rank {}, or change rank_of", owner)});
}

void check_gathers(const Schedule& s, int rank) {
  const std::vector<Action>& list = s.lists[static_cast<size_t>(rank)];
  const bool gathers =
      std::any_of(list.begin(), list.end(), [](const Action& a) { return a.act == Act::gather; });
  std::set<int> there;
  const auto refuse = [&](size_t i, const std::string& what, const std::string& fix) {
    refuse_schedule(s, {fmt::format("{}: {}", place_of(rank, i, list[i]), what),
                        "weights are gathered before their use and released once after it", fix});
  };
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& a = list[i];
    if (a.act == Act::gather && !there.insert(a.stage).second)
      refuse(i, "the stage is gathered already", "take it out, or write a release before it");
    if (a.act == Act::release && there.erase(a.stage) == 0)
      refuse(i, "the stage is not gathered", "take it out, or write a gather before it");
    if (gathers && computes(a.act) && there.count(a.stage) == 0)
      refuse(i, "the stage is not gathered",
             fmt::format("write {} before it", word_of({Act::gather, a.stage, a.micro})));
  }
  if (!there.empty())
    refuse(list.size() - 1, fmt::format("stage {} is still gathered at the end", *there.begin()),
           "write a release after its last use");
}

void check_updates(const Schedule& s, const Places& places, int rank) {
  const std::vector<Action>& list = s.lists[static_cast<size_t>(rank)];
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& a = list[i];
    if (a.act != Act::update) continue;
    Action last = places.backward_of(a.stage, a.micro);
    if (last.act == Act::input_backward) last.act = Act::weight_backward;
    if (places.of(last) > i)
      refuse_schedule(s, {fmt::format("{} stands before {}", place_of(rank, i, a), word_of(last)),
                          "an update needs the gradients of its last micro-batch",
                          fmt::format("move it behind action {}", *places.of(last))});
  }
}

void check_memory(const Schedule& s, int rank, int limit) {
  const std::vector<Action>& list = s.lists[static_cast<size_t>(rank)];
  int flying = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    const Act act = list[i].act;
    if (act == Act::backward || act == Act::weight_backward) --flying;
    if (act == Act::forward && ++flying > limit)
      refuse_schedule(s,
                      {fmt::format("{} makes {} micro-batches in flight, the limit is {}",
                                   place_of(rank, i, list[i]), flying, limit),
                       "a micro-batch keeps its activations from its forward to its last backward",
                       "move a backward of this rank before it, or raise the limit"});
  }
}

}  // namespace

void refuse_schedule(const Schedule& schedule, Complaint complaint) {
  complaint.what = fmt::format("schedule {}: {}", schedule.name, complaint.what);
  throw ConfigError(std::move(complaint));
}

std::string place_of(int rank, size_t index, const Action& action) {
  return fmt::format("rank {}, action {} ({})", rank, index, word_of(action));
}

Places::Places(const Schedule& schedule) : stages_(schedule.stages), micros_(schedule.micros) {
  places_.resize(static_cast<size_t>(Act::update) * cell({Act::forward, stages_, 0}) +
                 cell({Act::forward, stages_, 0}));
  for (int r = 0; r < schedule.ranks; ++r) {
    const std::vector<Action>& list = schedule.lists[static_cast<size_t>(r)];
    for (size_t i = 0; i < list.size(); ++i) {
      check_bounds(schedule, r, i, list[i]);
      if (list[i].act == Act::gather || list[i].act == Act::release) continue;
      std::optional<size_t>& place = places_[cell(list[i])];
      if (place)
        refuse_schedule(schedule,
                        {fmt::format("{} stands a second time, after action {}",
                                     place_of(r, i, list[i]), *place),
                         "each action of a stage and micro-batch is done once", "take one out"});
      place = i;
    }
  }
}

size_t Places::cell(const Action& action) const {
  const auto row = static_cast<size_t>(action.act) * static_cast<size_t>(stages_) +
                   static_cast<size_t>(action.stage);
  return row * static_cast<size_t>(micros_) + static_cast<size_t>(action.micro);
}

std::optional<size_t> Places::of(const Action& action) const { return places_[cell(action)]; }

Action Places::backward_of(int stage, int micro) const {
  const Action whole{Act::backward, stage, micro};
  return of(whole) ? whole : Action{Act::input_backward, stage, micro};
}

void check_computing(const Schedule& schedule) {
  check_shape(schedule);
  const Places places(schedule);
  check_passes(schedule, places);
  for (int r = 0; r < schedule.ranks; ++r) {
    check_gathers(schedule, r);
    check_updates(schedule, places, r);
  }
}

void check(const Schedule& schedule, int in_flight) {
  check_computing(schedule);
  const Places places(schedule);
  check_messages(schedule, places);
  for (int r = 0; in_flight > 0 && r < schedule.ranks; ++r) check_memory(schedule, r, in_flight);
  check_running(schedule, places);
}

}  // namespace braid::parallel
