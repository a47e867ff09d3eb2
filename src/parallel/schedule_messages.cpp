// SPDX-License-Identifier: BSD-3-Clause
// Checks of a schedule: passes in their order, and each send with its receive.
#include <fmt/format.h>

#include <map>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

int owner_of(const Schedule& s, const Action& a) { return s.rank_of[static_cast<size_t>(a.stage)]; }

void need_action(const Schedule& s, const Places& places, const Action& action, const char* why) {
  if (places.of(action)) return;
  refuse_schedule(s, {fmt::format("rank {}: {} is missing", owner_of(s, action), word_of(action)),
                      why, fmt::format("write it into the list of rank {}", owner_of(s, action))});
}

// Both on one rank.
void need_action_order(const Schedule& s, const Places& places, const Action& first,
                       const Action& then) {
  if (places.of(first) < places.of(then)) return;
  refuse_schedule(
      s, {fmt::format("{} stands before {}", place_of(owner_of(s, then), *places.of(then), then),
                      word_of(first)),
          "a pass needs what the other one makes",
          fmt::format("move it behind action {}", *places.of(first))});
}

void check_cell(const Schedule& s, const Places& places, int stage, int micro) {
  const Action f{Act::forward, stage, micro}, b{Act::backward, stage, micro};
  const Action i{Act::input_backward, stage, micro}, w{Act::weight_backward, stage, micro};
  need_action(s, places, f, "each stage runs each micro-batch once forward");
  if (!places.of(i) && !places.of(w)) {
    need_action(s, places, b, "each stage runs each micro-batch once backward");
    return need_action_order(s, places, f, b);
  }
  if (places.of(b))
    refuse_schedule(
        s, {fmt::format("{} occurs together with {}", place_of(owner_of(s, b), *places.of(b), b),
                        word_of(places.of(i) ? i : w)),
            "a backward pass is either whole (B) or split (I and W)", "take B out, or I and W"});
  need_action(s, places, i, "a split backward pass has I (of the input) and W (of the weights)");
  need_action(s, places, w, "a split backward pass has I (of the input) and W (of the weights)");
  need_action_order(s, places, f, i);
  need_action_order(s, places, i, w);
}

constexpr const char* placed_fix =
    "or leave out all sends and receives of the file: then they are placed";

void need_message(const Schedule& s, const Places& places, const Action& made,
                  const Action& needing) {
  const bool forward = made.act == Act::forward;
  const Message m =
      message_of(s, {forward ? Act::send_activation : Act::send_gradient, made.stage, made.micro});
  const auto refuse = [&](const std::string& what, const std::string& fix) {
    refuse_schedule(s, {what, "every send has one receive and every receive one send",
                        fmt::format("{}, {}", fix, placed_fix)});
  };
  if (!places.of(m.send))
    refuse(fmt::format("rank {}: {} is missing: rank {} needs it for {}", m.from, word_of(m.send),
                       m.to, word_of(needing)),
           fmt::format("write {} after {} in the list of rank {}", word_of(m.send), word_of(made),
                       m.from));
  if (!places.of(m.recv))
    refuse(fmt::format("rank {}: {} is missing: rank {} sends it with {}", m.to, word_of(m.recv),
                       m.from, word_of(m.send)),
           fmt::format("write {} before {} in the list of rank {}", word_of(m.recv),
                       word_of(needing), m.to));
  need_action_order(s, places, made, m.send);
  need_action_order(s, places, m.recv, needing);
}

void check_boundary(const Schedule& s, const Places& places, int stage, int micro) {
  const Action f{Act::forward, stage, micro}, next{Act::forward, stage + 1, micro};
  const Action b = places.backward_of(stage, micro), above = places.backward_of(stage + 1, micro);
  if (crosses(s, stage)) {
    need_message(s, places, f, next);
    return need_message(s, places, above, b);
  }
  need_action_order(s, places, f, next);
  need_action_order(s, places, above, b);
}

bool has_peer(const Schedule& s, const Action& a) {
  const bool up = a.act == Act::send_activation || a.act == Act::recv_gradient;
  const int stage = up ? a.stage : a.stage - 1;  // the boundary is behind this stage
  return stage >= 0 && stage + 1 < s.stages && crosses(s, stage);
}

// In the order of each list: [from][to], by the lists of the senders or of the receivers.
using WayOrder = std::map<std::pair<int, int>, std::vector<Action>>;

void check_direction(const Schedule& s, std::pair<int, int> way, const std::vector<Action>& sent,
                     const std::vector<Action>& received) {
  for (size_t i = 0; i < sent.size(); ++i) {
    const Message is = message_of(s, received[i]);
    if (is.send == sent[i]) continue;
    refuse_schedule(
        s, {fmt::format("message {} from rank {} to rank {} is sent by {} and received by {}", i,
                        way.first, way.second, word_of(sent[i]), word_of(received[i])),
            "messages between two ranks arrive in the order in which they were sent",
            fmt::format("put {} and {} at the same place among the messages of the two ranks, {}",
                        word_of(sent[i]), word_of(message_of(s, sent[i]).recv), placed_fix)});
  }
}

}  // namespace

void check_passes(const Schedule& schedule, const Places& places) {
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int k = 0; k < schedule.micros; ++k) check_cell(schedule, places, stage, k);
}

void check_messages(const Schedule& schedule, const Places& places) {
  WayOrder sent, received;
  for (int r = 0; r < schedule.ranks; ++r) {
    const std::vector<Action>& list = schedule.lists[static_cast<size_t>(r)];
    for (size_t i = 0; i < list.size(); ++i) {
      if (!sends(list[i].act) && !receives(list[i].act)) continue;
      if (!has_peer(schedule, list[i]))
        refuse_schedule(schedule,
                        {fmt::format("{} has no rank at its other end", place_of(r, i, list[i])),
                         "only stages that follow each other on two ranks send", "take it out"});
      const Message m = message_of(schedule, list[i]);
      (sends(list[i].act) ? sent : received)[{m.from, m.to}].push_back(list[i]);
    }
  }
  for (int stage = 0; stage + 1 < schedule.stages; ++stage)
    for (int k = 0; k < schedule.micros; ++k) check_boundary(schedule, places, stage, k);
  for (const auto& [way, actions] : sent) check_direction(schedule, way, actions, received[way]);
}

}  // namespace braid::parallel
