// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/allocator.h"

#include <gtest/gtest.h>

namespace braid::test {
namespace {

using plan::CachingAllocator;

constexpr int64_t kib = 1 << 10, mib = 1 << 20;

TEST(CachingAllocator, RoundsToTheUnitOf512Bytes) {
  CachingAllocator allocator;
  allocator.take(1, 1);
  allocator.take(2, 512);
  allocator.take(3, 513);
  EXPECT_EQ(allocator.requested(), 1026);
  EXPECT_EQ(allocator.allocated(), 512 + 512 + 1024);
  EXPECT_EQ(allocator.reserved(), 2 * mib) << "one small segment";
  allocator.take(4, 0);
  EXPECT_EQ(allocator.allocated(), 2048) << "nothing takes nothing";
  allocator.free(4);
}

TEST(CachingAllocator, TakesSegmentsByThreeSizes) {
  const auto reserved = [](int64_t bytes) {
    CachingAllocator allocator;
    allocator.take(1, bytes);
    return allocator.reserved();
  };
  EXPECT_EQ(reserved(1 * mib), 2 * mib);
  EXPECT_EQ(reserved(1 * mib + 1), 20 * mib);
  EXPECT_EQ(reserved(10 * mib - 512), 20 * mib);
  EXPECT_EQ(reserved(10 * mib), 10 * mib);
  EXPECT_EQ(reserved(10 * mib + 1), 12 * mib);
  EXPECT_EQ(reserved(33 * mib), 34 * mib);
}

TEST(CachingAllocator, SmallBlocksShareASegmentToTheLast512Bytes) {
  CachingAllocator allocator;
  allocator.take(1, 1 * mib);
  allocator.take(2, 1 * mib - 512);
  allocator.take(3, 512);
  EXPECT_EQ(allocator.reserved(), 2 * mib);
  allocator.take(4, 1);
  EXPECT_EQ(allocator.reserved(), 4 * mib);
}

TEST(CachingAllocator, ALargeBlockKeepsARestOfOneMebibyte) {
  CachingAllocator allocator;
  allocator.take(1, 9 * mib);
  allocator.take(2, 10 * mib - 1);  // of the 11 left; the rest of 1 MiB is no block of its own
  EXPECT_EQ(allocator.reserved(), 20 * mib);
  EXPECT_EQ(allocator.allocated(), 20 * mib);
  CachingAllocator other;
  other.take(1, 9 * mib);
  other.take(2, 9 * mib);  // 2 left: a block
  EXPECT_EQ(other.allocated(), 18 * mib);
  other.take(3, 2 * mib);
  EXPECT_EQ(other.reserved(), 20 * mib);
}

TEST(CachingAllocator, TakesTheSmallestGapThatIsLargeEnough) {
  CachingAllocator allocator;
  allocator.take(1, 40 * mib);
  allocator.take(2, 24 * mib);
  allocator.take(3, 30 * mib);
  allocator.free(1);
  allocator.free(2);
  allocator.free(3);
  allocator.take(4, 29 * mib);  // into 30: the rest of 1 MiB goes with it
  EXPECT_EQ(allocator.allocated(), 30 * mib);
  allocator.take(5, 25 * mib);  // into 40, of which 15 are left
  EXPECT_EQ(allocator.reserved(), 94 * mib);
  allocator.take(6, 15 * mib);
  EXPECT_EQ(allocator.reserved(), 94 * mib) << "in what was left of 40";
  allocator.take(7, 25 * mib);
  EXPECT_EQ(allocator.reserved(), 120 * mib) << "24 is too small: 26 more";
}

TEST(CachingAllocator, MergesNeighboursOfASegmentAndNoOthers) {
  CachingAllocator allocator;
  allocator.take(1, 6 * mib);
  allocator.take(2, 6 * mib);
  allocator.take(3, 6 * mib);  // 2 left
  allocator.free(1);
  allocator.free(3);
  allocator.take(4, 9 * mib);
  EXPECT_EQ(allocator.reserved(), 40 * mib) << "two gaps of 6 and 8 do not hold 9";
  allocator.free(2);
  allocator.take(5, 20 * mib);
  EXPECT_EQ(allocator.reserved(), 40 * mib) << "all of the first segment is one gap";
  allocator.take(6, 12 * mib);
  EXPECT_EQ(allocator.reserved(), 52 * mib) << "11 of the second segment are left";
}

TEST(CachingAllocator, PeaksStandUntilTheyAreReset) {
  CachingAllocator allocator;
  allocator.take(1, 30 * mib);
  allocator.free(1);
  EXPECT_EQ(allocator.requested(), 0);
  EXPECT_EQ(allocator.peak_requested(), 30 * mib);
  EXPECT_EQ(allocator.peak_allocated(), 30 * mib);
  EXPECT_EQ(allocator.reserved(), 30 * mib) << "kept for the next one";
  allocator.reset_peak();
  EXPECT_EQ(allocator.peak_requested(), 0);
  EXPECT_EQ(allocator.peak_reserved(), 30 * mib);
}

TEST(CachingAllocator, GivesEmptySegmentsBackAtTheLimit) {
  CachingAllocator allocator({.limit = 100 * mib});
  allocator.take(1, 60 * mib);
  allocator.take(2, 4 * mib);
  EXPECT_EQ(allocator.reserved(), 80 * mib);
  allocator.free(1);
  allocator.take(3, 64 * mib);  // 60 and 20 are there; 60 goes, 20 has a block
  EXPECT_EQ(allocator.reserved(), 84 * mib);
  allocator.take(4, 64 * mib);
  EXPECT_EQ(allocator.reserved(), 148 * mib) << "it does not fit, and says by how much";
}

TEST(CachingAllocator, ExpandableSegmentsGrowByPages) {
  CachingAllocator allocator({.expandable = true});
  allocator.take(1, 100 * kib);
  EXPECT_EQ(allocator.reserved(), 2 * mib);
  allocator.take(2, 33 * mib);
  EXPECT_EQ(allocator.reserved(), 42 * mib) << "two pages of 20 beside the small ones";
  allocator.take(3, 6 * mib);
  EXPECT_EQ(allocator.reserved(), 42 * mib) << "7 were left";
  allocator.free(3);
  allocator.take(4, 26 * mib);
  EXPECT_EQ(allocator.reserved(), 62 * mib) << "7 and a page of 20";
  EXPECT_EQ(allocator.allocated(), 512 * 200 + (33 + 26) * mib);
}

TEST(CachingAllocator, WhatCanGrowIsLeftForLargerBlocks) {
  CachingAllocator allocator({.expandable = true});
  allocator.take(1, 15 * mib);
  allocator.take(2, 16 * mib);  // 9 are left at the end
  allocator.free(1);
  allocator.take(3, 8 * mib);  // 9 is the better fit, but the end may grow: into 15
  allocator.take(4, 8 * mib);  // 7 is too small: into 9
  EXPECT_EQ(allocator.reserved(), 40 * mib);
  allocator.take(5, 7 * mib);
  EXPECT_EQ(allocator.reserved(), 40 * mib) << "the 7 are still in one piece";
}

TEST(CachingAllocator, ExpandableSegmentsGiveWholePagesBack) {
  CachingAllocator allocator({.expandable = true, .limit = 100 * mib});
  allocator.take(1, 50 * mib);  // 60 mapped
  allocator.take(2, 10 * mib);
  allocator.free(1);            // 50 free: pages 0 and 1 are whole, page 2 is shared
  allocator.take(3, 70 * mib);  // does not fit into 50: 80 more, 40 given back
  EXPECT_EQ(allocator.reserved(), 100 * mib);
  allocator.free(2);
  allocator.free(3);
  EXPECT_EQ(allocator.requested(), 0);
  EXPECT_EQ(allocator.allocated(), 0);
}

TEST(CachingAllocator, PlaysAHistory) {
  using What = memory::HistoryEvent::What;
  memory::History history;
  history.names = {""};
  const auto add = [&](What what, uint64_t block, int64_t bytes) {
    history.events.push_back({.what = what, .block = block, .bytes = bytes});
  };
  add(What::before, 0, 3 * mib);
  add(What::taken, 1, 5 * mib);
  add(What::changed, 1, 5 * mib);
  add(What::freed, 0, 3 * mib);
  add(What::taken, 2, 2 * mib);
  CachingAllocator allocator;
  plan::replay(allocator, history);
  EXPECT_EQ(allocator.requested(), 7 * mib);
  EXPECT_EQ(allocator.peak_requested(), 8 * mib);
  EXPECT_EQ(allocator.reserved(), 20 * mib);
}

}  // namespace
}  // namespace braid::test
