// SPDX-License-Identifier: BSD-3-Clause
// Runs a schedule without a clock, with ranks that wait as they would, to find those that would
// wait forever.
#include <fmt/format.h>

#include <vector>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

// Of this action: the send that it waits for; none: it can start.
std::optional<Action> awaited(const Schedule& s, const Action& a) {
  if (a.act == Act::forward && a.stage > 0 && crosses(s, a.stage - 1))
    return Action{Act::send_activation, a.stage - 1, a.micro};
  const bool backward = a.act == Act::backward || a.act == Act::input_backward;
  if (backward && crosses(s, a.stage)) return Action{Act::send_gradient, a.stage + 1, a.micro};
  return std::nullopt;
}

}  // namespace

// Receives stand before the actions that need them and in the order of the sends, which has been
// checked: what was sent has arrived.
void check_running(const Schedule& schedule, const Places& places) {
  std::vector<size_t> at(schedule.lists.size(), 0);
  const auto sent = [&](const Action& send) {
    const int from = schedule.rank_of[static_cast<size_t>(send.stage)];
    return places.of(send) < at[static_cast<size_t>(from)];
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t r = 0; r < at.size(); ++r)
      for (; at[r] < schedule.lists[r].size(); ++at[r], moved = true) {
        const std::optional<Action> message = awaited(schedule, schedule.lists[r][at[r]]);
        if (message && !sent(*message)) break;
      }
  }
  const std::string waiting = who_waits(schedule, at);
  if (!waiting.empty())
    refuse_schedule(schedule, {fmt::format("it never ends: {}", waiting),
                               "each waits for what another one does later",
                               "move the actions that the others wait for to the front"});
}

}  // namespace braid::parallel
