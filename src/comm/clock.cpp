// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/clock.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "braid/core/error.h"
#include "comm/clock_state.h"

namespace braid::comm {

int64_t VirtualClock::State::add(Node node) {
  nodes.push_back(std::move(node));
  fresh = false;
  return static_cast<int64_t>(nodes.size()) - 1;
}

int64_t VirtualClock::State::last(int rank, const std::string& stream) const {
  const auto found = lasts.find({rank, stream});
  return found == lasts.end() ? -1 : found->second;
}

void VirtualClock::State::put(int rank, const std::string& stream, int64_t node) {
  lasts[{rank, stream}] = node;
}

void VirtualClock::State::follow(int64_t node, int64_t before) {
  if (before >= 0) nodes[static_cast<size_t>(node)].after.push_back(before);
  fresh = false;
}

// Longest path through the graph, node by node as all that it comes after is known.
void VirtualClock::State::resolve() {
  if (fresh) return;
  std::vector<int64_t> waits(nodes.size()), ready;
  std::vector<std::vector<int64_t>> next(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].known = false;
    nodes[i].begin = 0;
    waits[i] = static_cast<int64_t>(nodes[i].after.size()) + nodes[i].absent;
    for (const int64_t before : nodes[i].after)
      next[static_cast<size_t>(before)].push_back(static_cast<int64_t>(i));
    if (nodes[i].message >= 0) {
      ++waits[i];
      next[static_cast<size_t>(nodes[i].message)].push_back(static_cast<int64_t>(i));
    }
    if (waits[i] == 0) ready.push_back(static_cast<int64_t>(i));
  }
  while (!ready.empty()) {
    const auto at = static_cast<size_t>(ready.back());
    ready.pop_back();
    nodes[at].end = nodes[at].begin + nodes[at].seconds;
    if (nodes[at].message >= 0)
      nodes[at].end = std::max(nodes[at].end, nodes[static_cast<size_t>(nodes[at].message)].end);
    nodes[at].known = true;
    for (const int64_t follower : next[at]) {
      Node& node = nodes[static_cast<size_t>(follower)];
      if (node.message != static_cast<int64_t>(at))
        node.begin = std::max(node.begin, nodes[at].end);
      if (--waits[static_cast<size_t>(follower)] == 0) ready.push_back(follower);
    }
  }
  fresh = true;
}

void VirtualClock::State::name_stuck() const {
  std::vector<std::string> reasons;
  for (const Node& node : nodes)
    if (node.absent > 0)
      reasons.push_back(fmt::format("{} lacks {} of its ranks", node.label, node.absent));
  std::string circle;
  for (const Shown& span : shown)
    if (!nodes[static_cast<size_t>(span.node)].known && circle.empty())
      circle = fmt::format("rank {} cannot get past {} on stream {}", span.rank, span.label,
                           span.stream);
  if (reasons.empty()) reasons.push_back("the calls wait for each other in a circle");
  throw CommError(
      {.what = fmt::format("the schedule does not end: {}; {}", fmt::join(reasons, "; "), circle),
       .why = "every recv has a send, every rank comes to every collective, and no rank "
              "waits for one of its own later actions",
       .fix = "compare the order of calls of the named ranks"});
}

VirtualClock::VirtualClock(int ranks, CostFunction cost)
    : state_(std::make_shared<State>(ranks, std::move(cost))) {}

int VirtualClock::ranks() const { return state_->ranks; }

void VirtualClock::run(int rank, const std::string& stream, double seconds,
                       const std::string& label) {
  const std::lock_guard lock(state_->mutex);
  const int64_t node = state_->add({.seconds = seconds, .label = label});
  state_->follow(node, state_->last(rank, stream));
  state_->put(rank, stream, node);
  state_->shown.push_back({rank, stream, label, node});
}

ClockMark VirtualClock::record(int rank, const std::string& stream) {
  const std::lock_guard lock(state_->mutex);
  return {state_->last(rank, stream)};
}

void VirtualClock::wait(int rank, const std::string& stream, ClockMark mark) {
  if (mark.node < 0) return;
  const std::lock_guard lock(state_->mutex);
  const int64_t join = state_->add({.label = "wait"});
  state_->follow(join, state_->last(rank, stream));
  state_->follow(join, mark.node);
  state_->put(rank, stream, join);
}

double VirtualClock::now(int rank, const std::string& stream) const {
  const std::lock_guard lock(state_->mutex);
  state_->resolve();
  const int64_t node = state_->last(rank, stream);
  if (node < 0) return 0;
  if (!state_->nodes[static_cast<size_t>(node)].known) state_->name_stuck();
  return state_->nodes[static_cast<size_t>(node)].end;
}

double VirtualClock::makespan() const {
  const std::lock_guard lock(state_->mutex);
  state_->resolve();
  double end = 0;
  for (const State::Node& node : state_->nodes) {
    if (!node.known) state_->name_stuck();
    end = std::max(end, node.end);
  }
  return end;
}

std::vector<ClockSpan> VirtualClock::spans() const {
  makespan();  // throws if some are not known
  const std::lock_guard lock(state_->mutex);
  std::vector<ClockSpan> result;
  for (const State::Shown& shown : state_->shown) {
    const State::Node& node = state_->nodes[static_cast<size_t>(shown.node)];
    result.push_back({shown.rank, shown.stream, shown.label, node.begin, node.end});
  }
  std::stable_sort(result.begin(), result.end(), [](const ClockSpan& a, const ClockSpan& b) {
    return std::tie(a.begin, a.rank) < std::tie(b.begin, b.rank);
  });
  return result;
}

}  // namespace braid::comm
