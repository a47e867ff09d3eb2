// SPDX-License-Identifier: BSD-3-Clause
// What check() says of broken lists: rank, action and what is missing.
#include <gtest/gtest.h>

#include <algorithm>

#include "braid/parallel/schedule.h"
#include "support/expect.h"

namespace braid::parallel {
namespace {

using test::contains;
using test::error_of;

Schedule two_ranks() { return make_schedule({.ranks = 2, .micros = 2}); }

// Of an action: its place in the list of a rank.
auto find(Schedule& schedule, size_t rank, const Action& action) {
  const auto at = std::find(schedule.lists[rank].begin(), schedule.lists[rank].end(), action);
  EXPECT_NE(at, schedule.lists[rank].end());
  return at;
}

void drop(Schedule& schedule, size_t rank, const Action& action) {
  schedule.lists[rank].erase(find(schedule, rank, action));
}

std::string refused(const Schedule& schedule, int in_flight = 0) {
  return error_of([&] { check(schedule, in_flight); });
}

TEST(ScheduleCheck, FindsWhatIsMissing) {
  Schedule s = two_ranks();
  drop(s, 0, {Act::forward, 0, 1});
  EXPECT_TRUE(contains(refused(s), "schedule 1f1b: rank 0: F1@0 is missing"));
  s = two_ranks();
  drop(s, 1, {Act::backward, 1, 0});
  EXPECT_TRUE(contains(refused(s), "rank 1: B0@1 is missing"));
  s = make_schedule({.kind = ScheduleKind::zb_h1, .ranks = 2, .micros = 2});
  drop(s, 1, {Act::weight_backward, 1, 1});
  EXPECT_TRUE(contains(refused(s), "rank 1: W1@1 is missing"));
}

TEST(ScheduleCheck, FindsASendWithoutAReceive) {
  Schedule s = two_ranks();
  drop(s, 0, {Act::send_activation, 0, 1});
  EXPECT_TRUE(contains(refused(s), "rank 0: SA1@0 is missing: rank 1 needs it for F1@1"));
  EXPECT_TRUE(contains(refused(s), "write SA1@0 after F1@0 in the list of rank 0"));
  s = two_ranks();
  drop(s, 0, {Act::recv_gradient, 0, 0});
  EXPECT_TRUE(contains(refused(s), "rank 0: RG0@0 is missing: rank 1 sends it with SG0@1"));
  s = two_ranks();
  s.lists[1].push_back({Act::send_activation, 1, 0});
  EXPECT_TRUE(contains(refused(s), "(SA0@1) has no rank at its other end"));
}

TEST(ScheduleCheck, FindsWhatStandsTwiceOrElsewhere) {
  Schedule s = two_ranks();
  s.lists[0].push_back({Act::forward, 0, 0});
  EXPECT_TRUE(contains(refused(s), "(F0@0) stands a second time, after action 0"));
  s = two_ranks();
  s.lists[0].push_back({Act::forward, 1, 0});
  EXPECT_TRUE(contains(refused(s), "(F0@1): stage 1 is on rank 1"));
  s = two_ranks();
  s.lists[0].push_back({Act::forward, 0, 2});
  EXPECT_TRUE(contains(refused(s), "micro-batches 0 ... 1"));
  s = two_ranks();
  s.lists[0].push_back({Act::input_backward, 0, 0});
  EXPECT_TRUE(contains(refused(s), "occurs together with I0@0"));
}

TEST(ScheduleCheck, FindsWhatComesTooEarly) {
  Schedule s = two_ranks();
  std::iter_swap(find(s, 1, {Act::forward, 1, 0}), find(s, 1, {Act::backward, 1, 0}));
  EXPECT_TRUE(contains(refused(s), "(B0@1) stands before F0@1"));
  s = make_schedule({.kind = ScheduleKind::zb_h1, .ranks = 2, .micros = 2});
  std::iter_swap(find(s, 0, {Act::input_backward, 0, 1}), find(s, 0, {Act::weight_backward, 0, 1}));
  EXPECT_TRUE(contains(refused(s), "(W1@0) stands before I1@0"));
  s = two_ranks();
  std::iter_swap(find(s, 0, {Act::forward, 0, 1}), find(s, 0, {Act::send_activation, 0, 1}));
  EXPECT_TRUE(contains(refused(s), "(SA1@0) stands before F1@0"));
  s = two_ranks();
  std::iter_swap(find(s, 1, {Act::recv_activation, 1, 1}), find(s, 1, {Act::forward, 1, 1}));
  EXPECT_TRUE(contains(refused(s), "(F1@1) stands before RA1@1"));
  s = make_schedule({.kind = ScheduleKind::pipedream, .ranks = 1, .micros = 2});
  std::iter_swap(find(s, 0, {Act::update, 0, 1}), find(s, 0, {Act::backward, 0, 1}));
  EXPECT_TRUE(contains(refused(s), "(U1@0) stands before B1@0"));
}

TEST(ScheduleCheck, FindsMessagesInAnotherOrder) {
  Schedule s = make_schedule({.kind = ScheduleKind::gpipe, .ranks = 2, .micros = 2});
  std::iter_swap(find(s, 0, {Act::recv_gradient, 0, 0}), find(s, 0, {Act::recv_gradient, 0, 1}));
  // Both stand before the first backward, so only the order is wrong.
  auto& list = s.lists[0];
  const Action late{Act::recv_gradient, 0, 0};
  drop(s, 0, late);
  list.insert(find(s, 0, {Act::backward, 0, 0}), late);
  EXPECT_TRUE(contains(refused(s),
                       "message 0 from rank 1 to rank 0 is sent by SG0@1 and received by RG1@0"));
}

TEST(ScheduleCheck, FindsRanksThatWaitForEachOther) {
  // Each on its own is a proper list: rank 0 wants a gradient first, rank 1 all activations first.
  Schedule s = make_schedule({.kind = ScheduleKind::naive, .ranks = 2, .micros = 2});
  s.lists[1] = make_schedule({.kind = ScheduleKind::gpipe, .ranks = 2, .micros = 2}).lists[1];
  const std::string text = refused(s);
  EXPECT_TRUE(contains(text, "it never ends: rank 0 waits at B0@0"));
  EXPECT_TRUE(contains(text, "rank 1 waits at F1@1"));
  EXPECT_TRUE(contains(error_of([&] { simulate(s); }), "never ends"));
}

TEST(ScheduleCheck, TakesReceivesRightBeforeTheirUse) {
  Schedule s = two_ranks();
  const Action late{Act::recv_activation, 1, 1};
  drop(s, 1, late);
  s.lists[1].insert(find(s, 1, {Act::forward, 1, 1}), late);
  EXPECT_NE(s, two_ranks());
  EXPECT_NO_THROW(check(s));
}

// Rank 2 wants both activations first, rank 1 a gradient in between, rank 0 another one.
TEST(ScheduleCheck, FindsACircleOfThreeRanks) {
  const std::string text = error_of([] {
    schedule_from(Config::parse(R"(
ranks: 3
micros: 2
lists:
  - [F0, SA0, RG0, B0, F1, SA1, RG1, B1]
  - [RA0, F0, SA0, RG1, RG0, B0, SG0, RA1, F1, SA1, B1, SG1]
  - [RA0, F0, RA1, F1, B1, SG1, B0, SG0]
)"));
  });
  for (const char* part : {"rank 0 waits at B0@0 (action 3)", "rank 1 waits at B0@1 (action 5)",
                           "rank 2 waits at F1@2 (action 3)"})
    EXPECT_TRUE(contains(text, part));
}

TEST(ScheduleCheck, NeedsEachActionOfAListOnce) {
  using enum ScheduleKind;
  for (const ScheduleKind kind : {gpipe, one_f_one_b, interleaved, zb_h2, zb_v})
    for (const bool gathers : {false, true}) {
      ScheduleOptions options = {.kind = kind, .ranks = 3, .micros = 4};
      options.chunks = kind == interleaved ? 2 : 1;
      options.gathers = gathers;
      const Schedule whole = make_schedule(options);
      for (size_t r = 0; r < whole.lists.size(); ++r)
        for (size_t i = 0; i < whole.lists[r].size(); ++i) {
          const auto at = static_cast<ptrdiff_t>(i);
          Schedule s = whole;
          s.lists[r].erase(s.lists[r].begin() + at);
          EXPECT_THROW(check(s), ConfigError) << to_text(kind) << " without " << r << ", " << i;
          s = whole;
          s.lists[r].insert(s.lists[r].begin() + at, whole.lists[r][i]);
          EXPECT_THROW(check(s), ConfigError) << to_text(kind) << " twice " << r << ", " << i;
        }
    }
}

TEST(ScheduleCheck, HoldsTheLimitOfMemory) {
  const Schedule s = make_schedule({.ranks = 4, .micros = 8});
  EXPECT_NO_THROW(check(s, 4));
  EXPECT_TRUE(contains(refused(s, 3), "rank 0, action "));
  EXPECT_TRUE(contains(refused(s, 3), "(F3@0) makes 4 micro-batches in flight, the limit is 3"));
  const Schedule h2 = make_schedule({.kind = ScheduleKind::zb_h2, .ranks = 4, .micros = 8});
  EXPECT_NO_THROW(check(h2, 7));
  EXPECT_TRUE(contains(refused(h2, 6), "makes 7 micro-batches"));
}

TEST(ScheduleCheck, WantsWeightsGatheredForTheirUse) {
  const auto fresh = [] { return make_schedule({.ranks = 2, .micros = 2, .gathers = true}); };
  Schedule s = fresh();
  drop(s, 1, {Act::gather, 1, 0});
  EXPECT_TRUE(contains(refused(s), "(R1@1): the stage is not gathered"));
  s = fresh();
  drop(s, 1, {Act::release, 1, 1});
  EXPECT_TRUE(contains(refused(s), "stage 1 is still gathered at the end"));
  s = fresh();
  s.lists[0].insert(find(s, 0, {Act::forward, 0, 1}), {Act::gather, 0, 1});
  EXPECT_TRUE(contains(refused(s), "(G1@0): the stage is gathered already"));
  s = fresh();
  s.lists[0].insert(find(s, 0, {Act::forward, 0, 1}), {Act::release, 0, 0});
  EXPECT_TRUE(contains(refused(s), "(F1@0): the stage is not gathered"));
}

TEST(ScheduleCheck, WantsListsForItsRanksAndStages) {
  Schedule s = two_ranks();
  s.lists.pop_back();
  EXPECT_TRUE(contains(refused(s), "1 lists for ranks = 2"));
  s = two_ranks();
  s.rank_of = {0, 2};
  EXPECT_TRUE(contains(refused(s), "stage 1 is on rank 2 of 2"));
  s = two_ranks();
  s.rank_of = {0};
  EXPECT_TRUE(contains(refused(s), "rank_of has 1 entries"));
}

}  // namespace
}  // namespace braid::parallel
