// SPDX-License-Identifier: BSD-3-Clause
// Instruments see the step of their rank and nothing of the threads that carry its messages.
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "braid/memory/instruments.h"
#include "support/ranks.h"

namespace braid::test {
namespace {

TEST(Instruments, DoNotFollowACollectiveOntoItsThreads) {
  on_ranks(3, [](comm::Group world) {
    const at::Tensor mine = at::ones({1000});
    const at::Tensor all = at::empty({3000});
    for (int i = 0; i < 20; ++i) {
      comm::Pending late;
      {
        memory::OperatorLog log;
        memory::Ledger ledger;
        const memory::Instruments on({.ledger = &ledger, .log = &log});
        world.all_gather(all, mine).wait();
        EXPECT_TRUE(log.operators().empty()) << log.operators().front().name;
        late = world.all_gather(all, mine);  // ends after the instruments are gone
      }
      late.wait();
    }
  });
}

}  // namespace
}  // namespace braid::test
