// SPDX-License-Identifier: BSD-3-Clause
// Which version of its weights a stage uses where updates come between micro-batches: read off the
// lists, not from a formula.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

// Calls with each action of a stage and the number of updates before it.
template <class Visit>
void replay_stage(const Schedule& schedule, int stage, Visit visit) {
  int version = 0;
  for (const Action& a :
       schedule.lists[static_cast<size_t>(schedule.rank_of[static_cast<size_t>(stage)])]) {
    if (a.stage != stage) continue;
    if (a.act == Act::update) ++version;
    visit(a, version);
  }
}

// The newest version at the forward of each micro-batch.
std::vector<int> newest_at_forward(const Schedule& schedule, int stage) {
  std::vector<int> newest(static_cast<size_t>(schedule.micros));
  replay_stage(schedule, stage, [&](const Action& a, int version) {
    if (a.act == Act::forward) newest[static_cast<size_t>(a.micro)] = version;
  });
  return newest;
}

// 2BW: micro-batches whose gradients enter update q + 1 run with the weights before update q.
std::vector<int> one_update_behind(const Schedule& schedule, int stage) {
  std::vector<int> round(static_cast<size_t>(schedule.micros), 0);
  replay_stage(schedule, stage, [&](const Action& a, int) {
    if (a.act != Act::update) return;
    for (int k = a.micro + 1; k < schedule.micros; ++k) ++round[static_cast<size_t>(k)];
  });
  for (int& version : round) version = std::max(version - 1, 0);
  return round;
}

void need_made(const Schedule& schedule, int stage, const std::vector<int>& used) {
  const std::vector<int> newest = newest_at_forward(schedule, stage);
  for (size_t k = 0; k < used.size(); ++k)
    if (used[k] > newest[k])
      refuse_schedule(schedule,
                      {fmt::format("stage {} runs micro-batch {} with version {} of its weights, "
                                   "but has made {} updates before",
                                   stage, k, used[k], newest[k]),
                       "a version is there after its update",
                       "take at least as many micro-batches an update as ranks"});
}

std::vector<int> versions_used(const Schedule& schedule, const ScheduleOptions& options,
                               int stage) {
  std::vector<int> used;
  if (options.kind == ScheduleKind::pipedream_2bw)
    used = one_update_behind(schedule, stage);
  else
    used = newest_at_forward(schedule, options.vertical_sync ? 0 : stage);
  need_made(schedule, stage, used);
  return used;
}

int most_kept(const Schedule& schedule, int stage, const std::vector<int>& used) {
  std::map<int, int> needed;  // version: micro-batches that have not been backward with it
  for (const int version : used) ++needed[version];
  int most = 1;
  replay_stage(schedule, stage, [&](const Action& a, int newest) {
    int kept = needed.count(newest) > 0 ? 0 : 1;
    for (auto at = needed.begin(); at != needed.end() && at->first <= newest; ++at) ++kept;
    most = std::max(most, kept);
    if (a.act != Act::backward && a.act != Act::weight_backward) return;
    const auto done = needed.find(used[static_cast<size_t>(a.micro)]);
    if (--done->second == 0) needed.erase(done);
  });
  return most;
}

}  // namespace

std::vector<VersionUse> versions_of(const Schedule& schedule, const ScheduleOptions& options) {
  std::vector<VersionUse> all;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const std::vector<int> used = versions_used(schedule, options, stage);
    for (int k = 0; k < schedule.micros; ++k)
      all.push_back({stage, k, used[static_cast<size_t>(k)], used[static_cast<size_t>(k)]});
  }
  return all;
}

std::vector<int> versions_kept(const Schedule& schedule, const ScheduleOptions& options) {
  std::vector<int> kept;
  for (int stage = 0; stage < schedule.stages; ++stage)
    kept.push_back(most_kept(schedule, stage, versions_used(schedule, options, stage)));
  return kept;
}

}  // namespace braid::parallel
