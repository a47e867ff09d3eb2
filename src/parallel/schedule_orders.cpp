// SPDX-License-Identifier: BSD-3-Clause
// In which order each rank computes. Rank r of p holds stage r, or stages r, r + p, ... when
// interleaved.
#include <algorithm>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

using PassOrder = std::vector<Action>;

PassOrder all_passes(Act act, int stage, int micros) {
  PassOrder order;
  for (int k = 0; k < micros; ++k) order.push_back({act, stage, k});
  return order;
}

// `warm` forwards, then one forward and one backward in turn, then the backwards that are left.
PassOrder in_turn(const PassOrder& forwards, const PassOrder& backwards, int warm) {
  const size_t first = std::min(forwards.size(), static_cast<size_t>(warm));
  PassOrder order(forwards.begin(), forwards.begin() + static_cast<ptrdiff_t>(first));
  for (size_t i = 0; i < backwards.size(); ++i) {
    if (first + i < forwards.size()) order.push_back(forwards[first + i]);
    order.push_back(backwards[i]);
  }
  return order;
}

// Micro-batches advance in groups of `ranks`: each group through all stages of the rank.
PassOrder by_groups(Act act, int rank, const ScheduleOptions& o) {
  PassOrder order;
  for (int group = 0; group < o.micros; group += o.ranks)
    for (int c = 0; c < o.chunks; ++c)
      for (int k = group; k < group + o.ranks; ++k) {
        const int chunk = act == Act::forward ? c : o.chunks - 1 - c;
        order.push_back({act, chunk * o.ranks + rank, k});
      }
  return order;
}

}  // namespace

ActionLists naive_order(int ranks, int micros) {
  ActionLists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    lists[static_cast<size_t>(r)] =
        in_turn(all_passes(Act::forward, r, micros), all_passes(Act::backward, r, micros), 0);
  return lists;
}

ActionLists gpipe_order(int ranks, int micros) {
  ActionLists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    lists[static_cast<size_t>(r)] =
        in_turn(all_passes(Act::forward, r, micros), all_passes(Act::backward, r, micros), micros);
  return lists;
}

ActionLists one_f_one_b_order(int ranks, int micros) {
  ActionLists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r)
    lists[static_cast<size_t>(r)] = in_turn(all_passes(Act::forward, r, micros),
                                            all_passes(Act::backward, r, micros), ranks - r - 1);
  return lists;
}

// A last group of fewer than `ranks` micro-batches is filled up and the fill taken out again: with
// a shorter group the turns of two ranks no longer meet and they wait for each other.
ActionLists interleaved_order(int ranks, int micros, int chunks) {
  const ScheduleOptions full = {
      .ranks = ranks, .micros = (micros + ranks - 1) / ranks * ranks, .chunks = chunks};
  ActionLists lists;
  for (int r = 0; r < ranks; ++r) {
    PassOrder order = in_turn(by_groups(Act::forward, r, full), by_groups(Act::backward, r, full),
                              2 * (ranks - r - 1) + (chunks - 1) * ranks);
    std::erase_if(order, [&](const Action& action) { return action.micro >= micros; });
    lists.push_back(std::move(order));
  }
  return lists;
}

// The W of a micro-batch waits until depth * rank more B are done: the ranks at the end fill with
// them the time in which those at the start wait for gradients.
ActionLists zb_h_order(int ranks, int micros, int depth) {
  ActionLists lists(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    PassOrder& list = lists[static_cast<size_t>(r)];
    int f = 0, w = 0;
    while (f < std::min(depth * (ranks - r - 1), micros)) list.push_back({Act::forward, r, f++});
    for (int b = 0; b < micros; ++b) {
      if (f < micros) list.push_back({Act::forward, r, f++});
      list.push_back({Act::input_backward, r, b});
      if (b + 1 > depth * r) list.push_back({Act::weight_backward, r, w++});
    }
    while (w < micros) list.push_back({Act::weight_backward, r, w++});
  }
  return lists;
}

void add_updates(ActionLists& lists, int every) {
  for (PassOrder& list : lists) {
    PassOrder with;
    for (const Action& action : list) {
      with.push_back(action);
      if (action.act == Act::backward && (action.micro + 1) % every == 0)
        with.push_back({Act::update, action.stage, action.micro});
    }
    list = std::move(with);
  }
}

}  // namespace braid::parallel
