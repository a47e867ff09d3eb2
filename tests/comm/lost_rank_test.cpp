// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/zeros.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "braid/comm/group.h"
#include "braid/core/error.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

// A rank that has gone is an error on those that talk to it, never a signal.
TEST(LostRank, IsAnErrorForItsPeers) {
  ASSERT_EQ(signal(SIGPIPE, SIG_DFL), SIG_DFL) << "somebody hides the signal";
  for (int run = 0; run < 10; ++run) {
    test::on_ranks(3, [](comm::Group world) {
      if (world.rank() == 2) {
        world.barrier().wait();
        return world.abort();
      }
      const at::Tensor large = at::zeros({200'000});
      const std::string text = test::error_of([&] {
        world.barrier().wait();
        for (int i = 0; i < 100; ++i) {
          world.send(large, 2).wait();
          world.all_reduce(large).wait();
        }
      });
      EXPECT_TRUE(test::contains(text, "failed on rank " + std::to_string(world.rank()) + " of 3"));
    });
  }
}

TEST(LostRank, ThatIsKilledEndsTheOthersWithAnError) {
  testing::TestPartResultArray seen;
  {
    using Catch = testing::ScopedFakeTestPartResultReporter;
    const Catch here(Catch::INTERCEPT_ALL_THREADS, &seen);
    test::on_processes(2, [](comm::Group world) {
      world.barrier().wait();
      if (world.rank() == 1) raise(SIGKILL);
      world.all_reduce(at::zeros({3})).wait();
    });
  }
  ASSERT_EQ(seen.size(), 2);
  const std::string first = seen.GetTestPartResult(0).message();
  EXPECT_TRUE(test::contains(first, "process of rank 0 of 2 ended with code 1"));
  EXPECT_TRUE(
      test::contains(first, "all_reduce sum Float [3] of group world (call 1) failed on rank 0"));
  EXPECT_TRUE(test::contains(seen.GetTestPartResult(1).message(), "ended with code 137"));
}

}  // namespace
}  // namespace braid
