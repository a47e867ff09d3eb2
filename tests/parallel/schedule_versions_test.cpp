// SPDX-License-Identifier: BSD-3-Clause
// Pipelines without flush: which weights a micro-batch meets, and how many versions are kept.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/parallel/schedule.h"
#include "support/expect.h"

namespace braid::parallel {
namespace {

using enum ScheduleKind;

int version_at(const std::vector<VersionUse>& all, int stage, int micro) {
  for (const VersionUse& use : all)
    if (use.stage == stage && use.micro == micro) {
      EXPECT_EQ(use.forward, use.backward);  // what was stashed at forward
      return use.forward;
    }
  ADD_FAILURE() << "no entry for stage " << stage << ", micro-batch " << micro;
  return -1;
}

// w(t+1) = w(t) - lr grad f(w_1(t-n+1), w_2(t-n+2), ..., w_n(t)): stages from 1, n of them.
TEST(ScheduleVersions, PipeDreamStashesOneVersionLessAStage) {
  for (const int n : {1, 2, 3, 4, 6}) {
    const ScheduleOptions options = {.kind = pipedream, .ranks = n, .micros = 4 * n};
    const Schedule schedule = make_schedule(options);
    const auto log = versions_of(schedule, options);
    EXPECT_EQ(log.size(), static_cast<size_t>(n * 4 * n));
    for (int t = 0; t < 4 * n; ++t)
      for (int i = 1; i <= n; ++i) EXPECT_EQ(version_at(log, i - 1, t), std::max(t - n + i, 0));
    const std::vector<int> kept = versions_kept(schedule, options);
    for (int r = 0; r < n; ++r) EXPECT_EQ(kept[static_cast<size_t>(r)], n - r);
  }
}

// w(t+1) = w(t) - lr grad f(w_1(t-n+1), ..., w_n(t-n+1)).
TEST(ScheduleVersions, VerticalSyncUsesOneVersionOnAllStages) {
  for (const int n : {1, 2, 3, 4, 6}) {
    const ScheduleOptions options = {
        .kind = pipedream, .ranks = n, .micros = 4 * n, .vertical_sync = true};
    const Schedule schedule = make_schedule(options);
    const auto log = versions_of(schedule, options);
    for (int t = 0; t < 4 * n; ++t)
      for (int s = 0; s < n; ++s) EXPECT_EQ(version_at(log, s, t), std::max(t - n + 1, 0));
    EXPECT_EQ(versions_kept(schedule, options), std::vector<int>(static_cast<size_t>(n), n));
  }
}

TEST(ScheduleVersions, TwoBufferedWeightsAreOneUpdateBehind) {
  for (const int p : {1, 2, 3, 4})
    for (const int m : {p, p + 1, 2 * p + 1}) {
      const ScheduleOptions options = {.kind = pipedream_2bw, .ranks = p, .micros = m, .rounds = 5};
      const Schedule schedule = make_schedule(options);
      check(schedule, p);
      const auto log = versions_of(schedule, options);
      for (int k = 1; k <= 5 * m; ++k)  // micro-batches from 1, as in the paper
        for (int s = 0; s < p; ++s)
          EXPECT_EQ(version_at(log, s, k - 1), std::max((k - 1) / m - 1, 0)) << p << " " << m;
      for (const int kept : versions_kept(schedule, options)) EXPECT_EQ(kept, 2);
    }
}

TEST(ScheduleVersions, TwoBufferedWeightsNeedAVersionThatIsThere) {
  Schedule schedule =
      make_schedule({.kind = pipedream, .ranks = 4, .micros = 8});  // an update each
  const std::string text = test::error_of(
      [&] { versions_of(schedule, {.kind = pipedream_2bw, .ranks = 4, .micros = 8}); });
  EXPECT_TRUE(test::contains(text, "stage 0 runs micro-batch 2 with version 1"));
}

TEST(ScheduleVersions, WithFlushThereIsOneVersion) {
  const ScheduleOptions options = {.kind = zb_h1, .ranks = 3, .micros = 5};
  for (const VersionUse& use : versions_of(make_schedule(options), options))
    EXPECT_EQ(use.forward, 0);
  EXPECT_EQ(versions_kept(make_schedule(options), options), std::vector<int>(3, 1));
}

TEST(ScheduleVersions, UpdatesFollowTheirLastMicroBatch) {
  const auto updates = [](const Schedule& s, size_t rank) {
    std::vector<int> micros;
    for (size_t i = 0; i < s.lists[rank].size(); ++i) {
      if (s.lists[rank][i].act != Act::update) continue;
      micros.push_back(s.lists[rank][i].micro);
      const auto before = std::find(s.lists[rank].begin(), s.lists[rank].end(),
                                    Action{Act::backward, static_cast<int>(rank), micros.back()});
      EXPECT_LT(before - s.lists[rank].begin(), static_cast<ptrdiff_t>(i));
    }
    return micros;
  };
  const Schedule each = make_schedule({.kind = pipedream, .ranks = 2, .micros = 3});
  EXPECT_EQ(updates(each, 0), (std::vector{0, 1, 2}));
  const Schedule rounds =
      make_schedule({.kind = pipedream_2bw, .ranks = 2, .micros = 3, .rounds = 2});
  EXPECT_EQ(updates(rounds, 1), (std::vector{2, 5}));
  EXPECT_EQ(rounds.micros, 6);
}

// From the first backward of the first rank to its last forward every rank is always busy.
TEST(ScheduleVersions, TheSteadyStateHasNoBubble) {
  for (const int p : {2, 3, 4, 8}) {
    const Schedule schedule = make_schedule({.kind = pipedream, .ranks = p, .micros = 6 * p});
    const Timeline clock = simulate(schedule);
    double begin = 0, end = 0;
    for (const TimedAction& t : clock.ranks[0]) {
      if (t.action == Action{Act::backward, 0, 0}) begin = t.begin;
      if (t.action == Action{Act::forward, 0, 6 * p - 1}) end = t.end;
    }
    ASSERT_GT(end - begin, 3.0 * 4 * p);
    for (const auto& timed : clock.ranks) {
      double busy = 0;
      for (const TimedAction& t : timed)
        busy += std::max(0.0, std::min(t.end, end) - std::max(t.begin, begin));
      EXPECT_EQ(busy, end - begin) << "p " << p;
    }
  }
}

}  // namespace
}  // namespace braid::parallel
