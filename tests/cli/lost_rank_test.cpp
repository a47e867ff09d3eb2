// SPDX-License-Identifier: BSD-3-Clause
// kill -9 of a rank of `braid train --ranks 3`: what the terminal shows, and that nobody is left.
#include <gtest/gtest.h>

#include <algorithm>

#include "cli/braid.h"
#include "launch/processes.h"

namespace braid::test {
namespace {

TEST_F(Cli, ALostRankIsNamedInOneLineAndEndsTheOthers) {
  Command run(braid_words({"train", config("long"), "--ranks", "3", "--quiet", "--set",
                           "launch.timeout=5s", "--set", "checkpoint.every=10"}));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "step-00000020")) << run.err();
  const std::vector<pid_t> processes = processes_with(dir.path().string());
  ASSERT_EQ(processes.size(), 4u);  // the launcher and three ranks
  kill(*std::max_element(processes.begin(), processes.end()), SIGKILL);
  const Outcome done = run.wait();
  EXPECT_EQ(done.code, 5) << done.err;
  EXPECT_TRUE(eventually([&] { return processes_with(dir.path().string()).empty(); }));
  EXPECT_TRUE(contains(done.err, "was killed by SIGKILL; the other ranks are ended"));
  // On a busy machine the ranks may miss it before the launcher has told them.
  EXPECT_TRUE(contains(done.err, "was broken off: rank 2 is gone; it last did: ") ||
              contains(done.err, "rank 2 did not arrive; it last did: "))
      << done.err;
  EXPECT_EQ(done.err.find("Connection closed"), std::string::npos) << done.err;
  const Outcome more = train("long", {"--resume", "--json", "--set", "train.steps=30"});
  EXPECT_EQ(more.code, 0) << more.err;
}

}  // namespace
}  // namespace braid::test
