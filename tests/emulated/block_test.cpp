// SPDX-License-Identifier: BSD-3-Clause
// The emulated device sees what it is there to see.
#include "emulated/block.h"

#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "support/expect.h"

namespace braid::emulated {
namespace {

// Each thread reads what its neighbour has written to shared memory.
std::vector<int> neighbours(unsigned blocks, unsigned threads, bool wait) {
  std::vector<int> found(size_t{blocks} * threads, -1);
  run_grid({{blocks}, {threads}, threads * sizeof(int)}, [&] {
    auto* held = reinterpret_cast<int*>(shared_bytes());
    held[threadIdx.x] = static_cast<int>(threadIdx.x);
    if (wait) wait_for_block();
    found[blockIdx.x * threads + threadIdx.x] = held[(threadIdx.x + 1) % threads];
  });
  return found;
}

TEST(EmulatedBlock, WaitsForAllThreads) {
  const std::vector<int> found = neighbours(4, 100, true);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_EQ(found[i], static_cast<int>((i % 100 + 1) % 100)) << i;
}

TEST(EmulatedBlock, ShowsAMissingBarrierInWhicheverDirection) {
  const std::vector<int> found = neighbours(2, 64, false);
  int stale = 0;
  for (size_t i = 0; i < found.size(); ++i) stale += found[i] == -1 ? 1 : 0;
  EXPECT_GE(stale, 64) << "memory that was not written holds ones";
}

TEST(EmulatedBlock, ThreadsThatHaveEndedAreNotWaitedFor) {
  int passed = 0;
  run_grid({{1}, {96}}, [&] {
    if (threadIdx.x >= 40) return;
    wait_for_block();
    ++passed;
  });
  EXPECT_EQ(passed, 40);
}

TEST(EmulatedBlock, SomeThreadsMeetWhileOthersGoOn) {
  std::vector<unsigned> order;
  run_grid({{1}, {128}}, [&] {
    if (threadIdx.x < 64) wait_for_some(1, 64);
    order.push_back(threadIdx.x);
  });
  EXPECT_EQ(order.size(), 128U);
}

TEST(EmulatedBlock, NamesThreadsThatWaitForever) {
  std::string text;
  try {
    run_grid({{2}, {64}}, [] {
      if (blockIdx.x == 1 && threadIdx.x > 2) wait_for_some(3, 64);
    });
  } catch (const std::runtime_error& error) {
    text = error.what();
  }
  EXPECT_TRUE(test::contains(text,
                             "emulated block (1, 0, 0): 61 of 64 threads wait for others that "
                             "never come, the first is thread 3"))
      << text;
  EXPECT_EQ(neighbours(1, 64, true)[63], 0) << "and the next grid runs";
}

TEST(EmulatedBlock, LanesExchangeWords) {
  std::vector<uint32_t> found(64);
  run_grid({{1}, {64}}, [&] {
    uint32_t sum = threadIdx.x;
    for (uint32_t step = 16; step > 0; step /= 2)
      sum += share_in_warp({sum})[(threadIdx.x % 32) ^ step][0];
    found[threadIdx.x] = sum;
  });
  EXPECT_EQ(found[0], 496U);
  EXPECT_EQ(found[63], 496U + 32 * 32);
}

TEST(EmulatedBlock, CopiesAreDoneWhenTheyWereWaitedFor) {
  const int from[2] = {7, 8};
  int to[2] = {0, 0}, early = -1, first = -1;
  run_grid({{1}, {1}}, [&] {
    copy_later(&to[0], &from[0], sizeof(int));
    close_group();
    copy_later(&to[1], &from[1], sizeof(int));
    close_group();
    early = to[0];
    wait_for_groups(1);
    first = to[0] + to[1];
    wait_for_groups(0);
  });
  EXPECT_EQ(early, 0);
  EXPECT_EQ(first, 7);
  EXPECT_EQ(to[1], 8);
}

TEST(EmulatedBlockDeathTest, SharedMemoryEndsWhereTheLaunchSays) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto write = [](size_t at) { run_grid({{1}, {1}, 64}, [&] { shared_bytes()[at] = 1; }); };
  write(63);
  EXPECT_DEATH(write(64), "use-after-poison");
}

TEST(EmulatedDevice, MemoryThatNobodyWroteHoldsNoNumbers) {
  const c10::Device gpu(c10::kCUDA, 0);
  const at::Tensor fresh = at::empty({3, 5}, at::TensorOptions(gpu).dtype(c10::kBFloat16));
  EXPECT_TRUE(fresh.isnan().all().item<bool>());
}

TEST(EmulatedDevice, ViewsShareTheirMemory) {
  const at::Tensor whole = at::full({4, 6}, 1.0, at::TensorOptions(c10::Device(c10::kCUDA, 0)));
  whole.narrow(1, 2, 3).t().fill_(5);
  EXPECT_EQ(whole.sum().item<double>(), 12 + 12 * 5);
  EXPECT_TRUE(whole.is_cuda() && whole.t().is_cuda() && whole.cpu().is_cpu());
}

}  // namespace
}  // namespace braid::emulated
