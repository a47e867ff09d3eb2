// SPDX-License-Identifier: BSD-3-Clause
#include "braid/memory/usage.h"

#include <gtest/gtest.h>

#include <memory>

namespace braid::memory {
namespace {

TEST(MemoryUsage, SeesABlockThatWasTouchedAndThatItWentAway) {
  const int64_t size = int64_t{256} << 20;
  const int64_t before = current_rss();
  const int64_t peak_before = peak_rss();
  ASSERT_GT(before, 0);
  EXPECT_GE(peak_before, before / 2);
  {
    const auto block = std::make_unique<volatile char[]>(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; i += 4096) block[static_cast<size_t>(i)] = 1;
    EXPECT_GT(current_rss(), before + size * 9 / 10);
  }
  EXPECT_LT(current_rss(), before + size / 2);
  EXPECT_GT(peak_rss(), before + size * 9 / 10);  // the peak stays
  EXPECT_EQ(peak_bytes(c10::Device("cpu")), peak_rss());
}

TEST(MemoryUsage, ResetOfACpuPeakIsHarmless) {
  const int64_t peak = peak_rss();
  reset_peak(c10::Device("cpu"));
  EXPECT_GE(peak_rss(), peak);
}

}  // namespace
}  // namespace braid::memory
