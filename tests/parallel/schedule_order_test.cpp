// SPDX-License-Identifier: BSD-3-Clause
// Sends, receives and gathers around the passes of every schedule.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "braid/parallel/schedule.h"
#include "support/expect.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;
using enum ScheduleKind;

std::vector<ScheduleOptions> many_schedules() {
  std::vector<ScheduleOptions> all;
  for (const ScheduleKind kind :
       {naive, gpipe, one_f_one_b, interleaved, zb_h1, zb_h2, zb_v, pipedream, pipedream_2bw})
    for (const int p : {1, 2, 3, 4, 6})
      for (const int m : {1, 2, 3, 4, 5, 9, 12})
        for (const int v : kind == interleaved ? std::vector{2, 3} : std::vector{1})
          if (kind != pipedream_2bw || m >= p)
            all.push_back({.kind = kind, .ranks = p, .micros = m, .chunks = v});
  return all;
}

std::string said(const ScheduleOptions& o) {
  return std::string(to_text(o.kind)) + " p " + std::to_string(o.ranks) + " m " +
         std::to_string(o.micros) + " v " + std::to_string(o.chunks);
}

TEST(ScheduleOrder, EveryScheduleIsWhole) {
  for (const ScheduleOptions& options : many_schedules()) {
    SCOPED_TRACE(said(options));
    const Schedule schedule = make_schedule(options);
    EXPECT_NO_THROW(check(schedule));
    size_t computed = 0;
    for (const auto& list : schedule.lists)
      for (const Action& action : list) computed += computes(action.act) ? 1 : 0;
    const size_t passes = schedule.splits_backward() ? 3 : 2;
    EXPECT_EQ(computed, passes * static_cast<size_t>(schedule.stages * schedule.micros));
  }
}

// Stronger than check(): the lists run even if a send waits for its receive and a receive stops its
// rank, as with plain blocking calls.
bool runs_blocking(const Schedule& s) {
  std::vector<size_t> at(s.lists.size(), 0);
  const auto next = [&](size_t r) {
    while (at[r] < s.lists[r].size() && !sends(s.lists[r][at[r]].act) &&
           !receives(s.lists[r][at[r]].act))
      ++at[r];
    return at[r] < s.lists[r].size() ? s.lists[r][at[r]] : Action{Act::update, -1, -1};
  };
  const auto meets = [](const Action& send, const Action& recv) {
    return send.micro == recv.micro &&
           ((send.act == Act::send_activation && recv.act == Act::recv_activation &&
             recv.stage == send.stage + 1) ||
            (send.act == Act::send_gradient && recv.act == Act::recv_gradient &&
             recv.stage == send.stage - 1));
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t a = 0; a < at.size(); ++a)
      for (size_t b = 0; b < at.size(); ++b)
        if (a != b && meets(next(a), next(b))) {
          ++at[a];
          ++at[b];
          moved = true;
        }
  }
  for (size_t r = 0; r < at.size(); ++r)
    if (next(r).stage >= 0) return false;
  return true;
}

TEST(ScheduleOrder, RunsEvenWithBlockingMessages) {
  for (const ScheduleOptions& options : many_schedules())
    EXPECT_TRUE(runs_blocking(make_schedule(options))) << said(options);
}

TEST(ScheduleOrder, ASendFollowsTheActionThatMadeIt) {
  for (const ScheduleOptions& options : many_schedules())
    for (const auto& list : make_schedule(options).lists)
      for (size_t i = 0; i < list.size(); ++i) {
        if (!sends(list[i].act)) continue;
        const Action& made = list.at(i - 1);
        ASSERT_EQ(made.stage, list[i].stage) << said(options);
        ASSERT_EQ(made.micro, list[i].micro);
        ASSERT_EQ(made.act == Act::forward, list[i].act == Act::send_activation);
        ASSERT_TRUE(computes(made.act));
      }
}

TEST(ScheduleOrder, CountsTwoMessagesABoundaryAndMicroBatch) {
  const auto messages = [](const ScheduleOptions& options) {
    int count = 0;
    for (const auto& list : make_schedule(options).lists)
      for (const Action& action : list) count += sends(action.act) ? 1 : 0;
    return count;
  };
  EXPECT_EQ(messages({.kind = one_f_one_b, .ranks = 4, .micros = 8}), 2 * 3 * 8);
  EXPECT_EQ(messages({.kind = interleaved, .ranks = 4, .micros = 8, .chunks = 2}), 2 * 7 * 8);
  EXPECT_EQ(messages({.kind = zb_v, .ranks = 4, .micros = 8}), 2 * 6 * 8);  // its tip stays at home
  EXPECT_EQ(messages({.kind = interleaved, .ranks = 1, .micros = 3, .chunks = 4}), 0);
}

TEST(ScheduleOrder, OneForwardOneBackwardAsInThePaper) {
  EXPECT_EQ(to_text(make_schedule({.kind = one_f_one_b, .ranks = 3, .micros = 4})),
            "rank 0: F0 F1 F2 B0 F3 B1 B2 B3\n"
            "rank 1: F0 F1 B0 F2 B1 F3 B2 B3\n"
            "rank 2: F0 B0 F1 B1 F2 B2 F3 B3\n");
  EXPECT_EQ(to_text(make_schedule({.kind = zb_v, .ranks = 1, .micros = 2})),
            "rank 0: F0@0 F0@1 I0@1 W0@1 F1@0 I0@0 W0@0 F1@1 I1@1 W1@1 I1@0 W1@0\n");
}

TEST(ScheduleOrder, VeeHasFirstAndLastStageOnTheFirstRank) {
  const Schedule vee = make_schedule({.kind = zb_v, .ranks = 3, .micros = 5});
  EXPECT_EQ(vee.rank_of, (std::vector{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(vee.stages_of(0), (std::vector{0, 5}));
  EXPECT_EQ(make_schedule({.kind = interleaved, .ranks = 2, .micros = 2, .chunks = 2}).rank_of,
            (std::vector{0, 1, 0, 1}));
}

// Most stages of a rank that are gathered at once, and how often one is.
std::pair<int, int> gathers_of(const Schedule& schedule) {
  int most = 0, times = 0;
  for (const auto& list : schedule.lists) {
    std::set<int> there;
    for (const Action& a : list) {
      if (a.act == Act::gather) {
        there.insert(a.stage);
        ++times;
      }
      if (a.act == Act::release) there.erase(a.stage);
      most = std::max(most, static_cast<int>(there.size()));
    }
    EXPECT_TRUE(there.empty());
  }
  return {most, times};
}

TEST(ScheduleOrder, WeightsAreGatheredForAStretch) {
  for (ScheduleOptions options : many_schedules()) {
    options.gathers = true;
    const Schedule schedule = make_schedule(options);
    EXPECT_NO_THROW(check(schedule)) << said(options);
    EXPECT_EQ(gathers_of(schedule).first, 1) << said(options);
  }
  // One stage a rank stays for the whole list.
  EXPECT_EQ(gathers_of(make_schedule({.ranks = 4, .micros = 8, .gathers = true})).second, 4);
  ScheduleOptions wide = {.kind = interleaved, .ranks = 2, .micros = 4, .chunks = 3};
  wide.gathers = true;
  const int alone = gathers_of(make_schedule(wide)).second;
  wide.gathered = 2;
  const auto [most, times] = gathers_of(make_schedule(wide));
  EXPECT_EQ(most, 2);
  EXPECT_LT(times, alone);
  wide.gathered = 3;
  EXPECT_EQ(gathers_of(make_schedule(wide)), (std::pair{3, 6}));
}

TEST(ScheduleOrder, RefusesWhatDoesNotGoTogether) {
  const auto refused = [](const ScheduleOptions& o) { return error_of([&] { make_schedule(o); }); };
  EXPECT_TRUE(contains(refused({.kind = interleaved, .ranks = 2, .micros = 4}), "chunks = 1"));
  EXPECT_TRUE(contains(refused({.kind = interleaved, .ranks = 2, .micros = 4}), "schedule 1f1b"));
  EXPECT_TRUE(contains(refused({.kind = zb_v, .ranks = 2, .micros = 4, .chunks = 3}),
                       "two stages per rank"));
  EXPECT_TRUE(contains(refused({.kind = gpipe, .ranks = 2, .micros = 4, .chunks = 2}),
                       "schedule gpipe with chunks = 2"));
  EXPECT_TRUE(contains(refused({.kind = pipedream_2bw, .ranks = 4, .micros = 3}),
                       "set micros to 4 or more"));
  EXPECT_TRUE(contains(refused({.kind = zb_h1, .ranks = 4, .micros = 3, .vertical_sync = true}),
                       "vertical_sync"));
  EXPECT_TRUE(contains(refused({.kind = gpipe, .ranks = 4, .micros = 0}), "micros = 0"));
  EXPECT_TRUE(
      contains(refused({.kind = gpipe, .ranks = 4, .micros = 1, .rounds = 2}), "rounds = 2"));
  EXPECT_TRUE(contains(error_of([] { schedule_kind("1f2b"); }), "write 1f1b"));
}

}  // namespace
}  // namespace braid::parallel
