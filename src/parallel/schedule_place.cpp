// SPDX-License-Identifier: BSD-3-Clause
// Where sends, receives, gathers and releases stand in the lists.
#include <algorithm>
#include <map>
#include <tuple>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

// When an action ends on the virtual clock, with its rank and place for those that end together.
// All ranks pass messages in the order of these keys: a message is sent at the key of the action
// that makes it and received, in the other list, before the first action with a larger key. So no
// two ranks can wait for each other, even if every send waited for its receive.
using MessageKey = std::tuple<double, int, size_t>;

bool has_message(const Schedule& schedule, const Action& made) {
  if (made.act == Act::forward) return crosses(schedule, made.stage);
  const bool gradient = made.act == Act::backward || made.act == Act::input_backward;
  return gradient && made.stage > 0 && crosses(schedule, made.stage - 1);
}

Action send_of(const Action& made) {
  return {made.act == Act::forward ? Act::send_activation : Act::send_gradient, made.stage,
          made.micro};
}

using MessageArrivals = std::vector<std::map<MessageKey, Action>>;  // of each rank

MessageArrivals arrivals_of(const Schedule& schedule, const Timeline& clock) {
  MessageArrivals arrivals(schedule.lists.size());
  for (int r = 0; r < schedule.ranks; ++r) {
    const std::vector<TimedAction>& timed = clock.ranks[static_cast<size_t>(r)];
    for (size_t i = 0; i < timed.size(); ++i) {
      if (!has_message(schedule, timed[i].action)) continue;
      const Message message = message_of(schedule, send_of(timed[i].action));
      arrivals[static_cast<size_t>(message.to)][{timed[i].end, r, i}] = message.recv;
    }
  }
  return arrivals;
}

// Places of the uses of a stage's weights: of each action the stage, -1 for others.
std::vector<int> uses_of(const std::vector<Action>& list) {
  std::vector<int> uses;
  for (const Action& action : list) uses.push_back(computes(action.act) ? action.stage : -1);
  return uses;
}

size_t next_use(const std::vector<int>& uses, int stage, size_t from) {
  return static_cast<size_t>(
      std::find(uses.begin() + static_cast<ptrdiff_t>(from), uses.end(), stage) - uses.begin());
}

// A stretch of a stage in a list: gathered before `first`, released after `last`.
struct GatherStretch {
  int stage = 0;
  size_t first = 0, last = 0;
};

// When a stage needs a place, the one whose next use is the farthest gives up its own.
std::vector<GatherStretch> stretches_of(const std::vector<int>& uses, int gathered) {
  std::vector<GatherStretch> done, open;
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i] < 0) continue;
    const auto here = std::find_if(open.begin(), open.end(),
                                   [&](const GatherStretch& s) { return s.stage == uses[i]; });
    if (here != open.end()) {
      here->last = i;
      continue;
    }
    if (open.size() == static_cast<size_t>(gathered)) {
      const auto far =
          std::max_element(open.begin(), open.end(), [&](const auto& a, const auto& b) {
            return next_use(uses, a.stage, i) < next_use(uses, b.stage, i);
          });
      done.push_back(*far);
      open.erase(far);
    }
    open.push_back({uses[i], i, i});
  }
  done.insert(done.end(), open.begin(), open.end());
  return done;
}

}  // namespace

bool crosses(const Schedule& schedule, int stage) {
  return stage + 1 < schedule.stages && schedule.rank_of[static_cast<size_t>(stage)] !=
                                            schedule.rank_of[static_cast<size_t>(stage) + 1];
}

Message message_of(const Schedule& schedule, const Action& action) {
  const bool forward = action.act == Act::send_activation || action.act == Act::recv_activation;
  const int step = forward ? 1 : -1;
  const int sender = sends(action.act) ? action.stage : action.stage - step;
  const auto rank = [&](int stage) { return schedule.rank_of.at(static_cast<size_t>(stage)); };
  return {rank(sender),
          rank(sender + step),
          {forward ? Act::send_activation : Act::send_gradient, sender, action.micro},
          {forward ? Act::recv_activation : Act::recv_gradient, sender + step, action.micro}};
}

void place_messages(Schedule& schedule) {
  const Timeline clock = simulate(schedule);
  const MessageArrivals arrivals = arrivals_of(schedule, clock);
  for (int r = 0; r < schedule.ranks; ++r) {
    const std::vector<TimedAction>& timed = clock.ranks[static_cast<size_t>(r)];
    auto next = arrivals[static_cast<size_t>(r)].begin();
    const auto end = arrivals[static_cast<size_t>(r)].end();
    std::vector<Action> list;
    for (size_t i = 0; i < timed.size(); ++i) {
      const Action& action = timed[i].action;
      if (computes(action.act))
        for (; next != end && next->first < MessageKey{timed[i].end, r, i}; ++next)
          list.push_back(next->second);
      list.push_back(action);
      if (has_message(schedule, action)) list.push_back(send_of(action));
    }
    schedule.lists[static_cast<size_t>(r)] = std::move(list);
  }
}

void place_gathers(Schedule& schedule, int gathered) {
  for (std::vector<Action>& list : schedule.lists) {
    std::multimap<size_t, Action> before, after;
    for (const GatherStretch& s : stretches_of(uses_of(list), gathered)) {
      before.insert({s.first, {Act::gather, s.stage, list[s.first].micro}});
      after.insert({s.last, {Act::release, s.stage, list[s.last].micro}});
    }
    std::vector<Action> with;
    for (size_t i = 0; i < list.size(); ++i) {
      for (auto [at, stop] = before.equal_range(i); at != stop; ++at) with.push_back(at->second);
      with.push_back(list[i]);
      for (auto [at, stop] = after.equal_range(i); at != stop; ++at) with.push_back(at->second);
    }
    list = std::move(with);
  }
}

}  // namespace braid::parallel
