// SPDX-License-Identifier: BSD-3-Clause
// ZB-V: rank r of p holds stages r (going down) and 2p - 1 - r (going up), so that the first
// rank has also the loss. F, I and W of a stage take about the same time.
#include <algorithm>
#include <array>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

enum VeeWay : size_t { vee_down, vee_up };

// The list of one rank; each pass takes its micro-batches in order.
class VeeList {
 public:
  VeeList(int ranks, int rank) : stages_{rank, 2 * ranks - 1 - rank} {}

  int stage(VeeWay way) const { return stages_[way]; }
  int done(Act act, VeeWay way) const { return next_[static_cast<size_t>(act)][way]; }
  void add(Act act, VeeWay way) {
    list.push_back({act, stages_[way], next_[static_cast<size_t>(act)][way]++});
  }
  // I and W of a micro-batch at once.
  void add_backward(VeeWay way) {
    add(Act::input_backward, way);
    add(Act::weight_backward, way);
  }

  std::vector<Action> list;

 private:
  std::array<int, 2> stages_;
  std::array<std::array<int, 2>, 4> next_{};  // by the four acts that compute
};

void start_vee(VeeList& v, int ranks, int rank) {
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) v.add(Act::forward, vee_down);
  for (int i = 0; i < rank; ++i) {
    v.add(Act::forward, vee_up);
    v.add(Act::forward, vee_down);
  }
  for (int i = rank; i < ranks; ++i) {
    v.add(Act::forward, vee_up);
    v.add_backward(vee_up);
  }
}

// W stays behind where an I of another rank waits for this one's, and fills the end.
void finish_vee(VeeList& v, int ranks, int rank) {
  for (int i = 0; i < rank; ++i) {
    v.add(Act::input_backward, vee_down);
    v.add(Act::input_backward, vee_up);
  }
  for (int i = rank; i < ranks; ++i) {
    v.add(Act::input_backward, vee_down);
    v.add(Act::weight_backward, vee_down);
  }
  for (const VeeWay way : {vee_up, vee_down})
    while (v.done(Act::weight_backward, way) < v.done(Act::input_backward, way))
      v.add(Act::weight_backward, way);
}

// No rank ever idles between its first and its last action if all three passes take the same time
// and micros >= 2 ranks - 1; activations of 2 ranks stages at most.
std::vector<Action> periodic_vee(int ranks, int micros, int rank) {
  VeeList v(ranks, rank);
  start_vee(v, ranks, rank);
  while (v.done(Act::forward, vee_up) < micros) {
    if (v.done(Act::forward, vee_down) < micros) v.add(Act::forward, vee_down);
    v.add_backward(vee_down);
    v.add(Act::forward, vee_up);
    v.add_backward(vee_up);
  }
  finish_vee(v, ranks, rank);
  return v.list;
}

// With few micro-batches the period does not fill: time goes in steps of one pass, and each rank
// takes what others wait for longest.
class VeeGreedy {
 public:
  VeeGreedy(int ranks, int micros) : ranks_(ranks), micros_(micros) {
    for (int r = 0; r < ranks; ++r) lists_.emplace_back(ranks, r);
    forwards_.resize(2 * static_cast<size_t>(ranks));
    inputs_.resize(2 * static_cast<size_t>(ranks));
  }

  ActionLists run() {
    size_t left = static_cast<size_t>(ranks_) * static_cast<size_t>(micros_) * 6;
    while (left > 0) {
      const std::vector<size_t> before = lengths();
      for (VeeList& v : lists_) left -= step(v) ? 1 : 0;
      publish(before);
    }
    ActionLists lists;
    for (VeeList& v : lists_) lists.push_back(std::move(v.list));
    return lists;
  }

 private:
  // What the stages had done when this step began.
  std::vector<int> forwards_, inputs_;

  int seen(const std::vector<int>& counts, int stage) const {
    return counts[static_cast<size_t>(stage)];
  }

  bool may_forward(const VeeList& v, VeeWay way) const {
    const int stage = v.stage(way), k = v.done(Act::forward, way);
    const int held = v.done(Act::forward, vee_down) + v.done(Act::forward, vee_up) -
                     v.done(Act::weight_backward, vee_down) - v.done(Act::weight_backward, vee_up);
    return k < micros_ && held < 2 * ranks_ && (stage == 0 || seen(forwards_, stage - 1) > k);
  }

  bool may_backward(const VeeList& v, VeeWay way) const {
    const int stage = v.stage(way), k = v.done(Act::input_backward, way);
    return seen(forwards_, stage) > k && (stage == 2 * ranks_ - 1 || seen(inputs_, stage + 1) > k);
  }

  bool step(VeeList& v) const {
    for (const VeeWay way : {vee_up, vee_down})
      if (may_backward(v, way)) return v.add(Act::input_backward, way), true;
    for (const VeeWay way : {vee_up, vee_down})
      if (may_forward(v, way)) return v.add(Act::forward, way), true;
    for (const VeeWay way : {vee_up, vee_down})
      if (v.done(Act::weight_backward, way) < v.done(Act::input_backward, way))
        return v.add(Act::weight_backward, way), true;
    return false;
  }

  std::vector<size_t> lengths() const {
    std::vector<size_t> all;
    for (const VeeList& v : lists_) all.push_back(v.list.size());
    return all;
  }

  void publish(const std::vector<size_t>& before) {
    for (size_t r = 0; r < lists_.size(); ++r)
      if (lists_[r].list.size() > before[r]) {
        const Action& last = lists_[r].list.back();
        if (last.act == Act::forward) ++forwards_[static_cast<size_t>(last.stage)];
        if (last.act == Act::input_backward) ++inputs_[static_cast<size_t>(last.stage)];
      }
  }

  int ranks_, micros_;
  std::vector<VeeList> lists_;
};

}  // namespace

ActionLists zb_v_order(int ranks, int micros) {
  if (micros < 2 * ranks - 1) return VeeGreedy(ranks, micros).run();
  ActionLists lists;
  for (int r = 0; r < ranks; ++r) lists.push_back(periodic_vee(ranks, micros, r));
  return lists;
}

}  // namespace braid::parallel
