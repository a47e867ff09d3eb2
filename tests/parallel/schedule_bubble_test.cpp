// SPDX-License-Identifier: BSD-3-Clause
// Schedules on the virtual clock against the closed forms of their papers: equal, not close.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "braid/parallel/schedule.h"

namespace braid::parallel {
namespace {

using enum ScheduleKind;

Timeline clock_of(const ScheduleOptions& options, const Durations& durations = {}) {
  const Schedule schedule = make_schedule(options);
  check(schedule);
  return simulate(schedule, durations);
}

std::vector<int> counting_down(int first, int step, int ranks) {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r) all.push_back(first - r * step);
  return all;
}

struct BubbleRow {
  ScheduleKind kind;
  int ranks, micros, chunks;
  double makespan, percent;
  std::vector<int> in_flight;
};

// Forward 1, backward 2 (or 1 + 1 where it is split), no time for messages.
TEST(ScheduleBubble, EqualsTheTable) {
  const std::vector<BubbleRow> rows = {
      {gpipe, 4, 8, 1, 33, 27.27, {8, 8, 8, 8}},
      {one_f_one_b, 4, 8, 1, 33, 27.27, {4, 3, 2, 1}},
      {interleaved, 4, 8, 2, 28.5, 15.79, {11, 9, 7, 5}},
      {interleaved, 4, 8, 4, 26.25, 8.57, {19, 17, 15, 13}},
      {gpipe, 8, 32, 1, 117, 17.95, std::vector<int>(8, 32)},
      {one_f_one_b, 8, 32, 1, 117, 17.95, counting_down(8, 1, 8)},
      {interleaved, 8, 32, 3, 103, 6.80, counting_down(31, 2, 8)},
      {zb_h1, 4, 8, 1, 27, 11.11, {4, 4, 4, 4}},
      {zb_h2, 4, 8, 1, 27, 11.11, {7, 7, 7, 7}},  // of the time from first to last; of a rank: 0
  };
  for (const BubbleRow& row : rows) {
    SCOPED_TRACE(to_text(row.kind));
    const Timeline clock = clock_of(
        {.kind = row.kind, .ranks = row.ranks, .micros = row.micros, .chunks = row.chunks});
    EXPECT_EQ(clock.makespan, row.makespan);
    EXPECT_EQ(clock.in_flight, row.in_flight);
    EXPECT_EQ(clock.busy, std::vector<double>(static_cast<size_t>(row.ranks), 3.0 * row.micros));
    EXPECT_NEAR(100 * clock.bubble, row.percent, 0.005);
  }
  const Timeline h2 = clock_of({.kind = zb_h2, .ranks = 4, .micros = 8});
  EXPECT_EQ(h2.span, std::vector<double>(4, 24));
}

TEST(ScheduleBubble, NaiveUsesOneRankAtATime) {
  for (const int p : {1, 2, 3, 4, 8})
    for (const int m : {1, 2, 5}) {
      const Timeline clock = clock_of({.kind = naive, .ranks = p, .micros = m});
      EXPECT_EQ(clock.makespan, 3.0 * p * m);
      EXPECT_EQ(1 - clock.bubble, 1 - (p - 1.0) / p);
      EXPECT_EQ(clock.in_flight, std::vector<int>(static_cast<size_t>(p), 1));
    }
}

TEST(ScheduleBubble, OfGPipeAndOneForwardOneBackward) {
  for (int p = 1; p <= 8; ++p)
    for (const int m : {1, 2, 3, 4, 7, 8, 16, 33})
      for (const ScheduleKind kind : {gpipe, one_f_one_b}) {
        SCOPED_TRACE(testing::Message() << to_text(kind) << " p " << p << " m " << m);
        const Timeline clock = clock_of({.kind = kind, .ranks = p, .micros = m});
        EXPECT_EQ(clock.makespan, 3.0 * (m + p - 1));
        EXPECT_DOUBLE_EQ(clock.bubble, (p - 1.0) / (m + p - 1));
        for (int r = 0; r < p; ++r)
          EXPECT_EQ(clock.in_flight[static_cast<size_t>(r)],
                    kind == gpipe ? m : std::min(m, p - r));
      }
}

TEST(ScheduleBubble, OfInterleavedShrinksWithTheStages) {
  for (const int p : {2, 3, 4, 8})
    for (const int v : {2, 3, 4})
      for (const int groups : {1, 2, 4}) {
        const int m = groups * p;
        SCOPED_TRACE(testing::Message() << "p " << p << " v " << v << " m " << m);
        const Timeline clock =
            clock_of({.kind = interleaved, .ranks = p, .micros = m, .chunks = v});
        const double ideal = 3.0 * m;  // (makespan - ideal) / ideal == (p - 1) / (v m)
        EXPECT_EQ(clock.makespan * v, ideal * v + 3.0 * (p - 1));
        for (int r = 0; r < p; ++r)
          EXPECT_EQ(clock.in_flight[static_cast<size_t>(r)],
                    std::min(2 * (p - r - 1) + (v - 1) * p + 1, m * v));
      }
}

TEST(ScheduleBubble, OfInterleavedWithARemainderIsThatOfTheFullGroupAtMost) {
  for (const int p : {2, 3, 4, 7})
    for (const int v : {2, 3})
      for (int m = 1; m <= 3 * p; ++m) {
        const Timeline clock =
            clock_of({.kind = interleaved, .ranks = p, .micros = m, .chunks = v});
        const int full = (m + p - 1) / p * p;
        EXPECT_LE(clock.makespan * v, 3.0 * full * v + 3.0 * (p - 1)) << p << " " << v << " " << m;
        EXPECT_EQ(clock.busy[0], 3.0 * m);
      }
}

const std::vector<Durations> w_is_shortest = {
    {.forward = 1, .input_backward = 1, .weight_backward = 1},
    {.forward = 2, .input_backward = 2, .weight_backward = 1},
    {.forward = 4, .input_backward = 5, .weight_backward = 3},
    {.forward = 3, .input_backward = 2, .weight_backward = 2},
};

TEST(ScheduleBubble, OfZeroBubbleHandmade) {
  for (const Durations& d : w_is_shortest)
    for (const int p : {2, 3, 4, 8})
      for (const int m : {2 * p, 3 * p + 1}) {
        SCOPED_TRACE(testing::Message() << "p " << p << " m " << m << " F " << d.forward);
        const double f = d.forward, b = d.input_backward, w = d.weight_backward;
        const Timeline h1 = clock_of({.kind = zb_h1, .ranks = p, .micros = m}, d);
        EXPECT_EQ(h1.makespan, m * (f + b + w) + (p - 1) * (f + b - w));
        EXPECT_EQ(h1.in_flight, std::vector<int>(static_cast<size_t>(p), p));
        const Timeline h2 = clock_of({.kind = zb_h2, .ranks = p, .micros = m}, d);
        EXPECT_EQ(*std::max_element(h2.span.begin(), h2.span.end()),
                  m * (f + b + w) + (p - 1) * (f + b - 2 * w));
        EXPECT_EQ(h2.in_flight, std::vector<int>(static_cast<size_t>(p), 2 * p - 1));
      }
}

// Two stages a rank: p micro-batches of a whole rank are 2 p of its stages.
TEST(ScheduleBubble, OfZeroBubbleVeeIsZeroWithTheMemoryOfOneForwardOneBackward) {
  for (int p = 1; p <= 9; ++p)
    for (const int m : {2 * p - 1, 2 * p, 2 * p + 3, 5 * p}) {
      SCOPED_TRACE(testing::Message() << "p " << p << " m " << m);
      const Timeline clock = clock_of({.kind = zb_v, .ranks = p, .micros = m});
      EXPECT_EQ(clock.span, clock.busy);
      EXPECT_EQ(clock.busy, std::vector<double>(static_cast<size_t>(p), 3.0 * m));
      EXPECT_EQ(clock.in_flight, std::vector<int>(static_cast<size_t>(p), 2 * p));
      EXPECT_EQ(clock.makespan, 3.0 * m + (p - 1) * 0.5);  // ranks start after each other
    }
}

TEST(ScheduleBubble, OfZeroBubbleVeeWithFewMicroBatches) {
  for (int p = 2; p <= 6; ++p)
    for (int m = 1; m < 2 * p - 1; ++m) {
      const Timeline clock = clock_of({.kind = zb_v, .ranks = p, .micros = m});
      const Timeline plain = clock_of({.kind = one_f_one_b, .ranks = p, .micros = m});
      EXPECT_LT(clock.makespan, plain.makespan) << p << " " << m;
      EXPECT_LE(*std::max_element(clock.in_flight.begin(), clock.in_flight.end()), 2 * p);
    }
}

TEST(ScheduleBubble, MessagesCostTheirTimeOnTheWayDownAndUp) {
  for (const int p : {2, 4})
    for (const int m : {1, 6}) {
      const Timeline clock = clock_of({.kind = gpipe, .ranks = p, .micros = m}, {.message = 0.25});
      EXPECT_EQ(clock.makespan, 3.0 * (m + p - 1) + 2 * (p - 1) * 0.25);
    }
}

TEST(ScheduleBubble, UnevenStagesWaitForTheSlowest) {
  const Schedule schedule = make_schedule({.kind = gpipe, .ranks = 2, .micros = 10});
  const Timeline clock = simulate(schedule, {.stage_share = {1, 3}});
  EXPECT_EQ(clock.makespan, 1 + 10 * 9 + 2);  // F of the fast one, the slow one's work, its last B
  EXPECT_EQ(clock.busy, (std::vector<double>{30, 90}));
}

}  // namespace
}  // namespace braid::parallel
