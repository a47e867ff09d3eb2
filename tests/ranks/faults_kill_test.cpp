// SPDX-License-Identifier: BSD-3-Clause
// kill -9 of a rank in each part of the training: the others end, the line names it, and the run
// goes on from the last checkpoint as if nothing had been.
#include "ranks/faulty_rank.h"

namespace braid::test {
namespace {

struct Kill {
  int rank;
  std::string at;
  std::string last_did;
};

// On a busy machine the others may still wait for the lost rank when they are asked.
void expect_lost(const Ended& end, const Kill& kill) {
  const std::string rank = "rank " + std::to_string(kill.rank);
  const bool waiting = contains(end.terminal, " did not arrive");
  const std::string lost = waiting ? " did not arrive" : " is gone";
  const std::string last = "; it last did: " + kill.last_did + " (no sign of life";
  expect_end(end, 5, {rank + lost + last, rank + " of 3 (process ", "was killed by SIGKILL"});
  EXPECT_EQ(end.terminal.find(lost), end.terminal.rfind(lost)) << end.terminal;
  EXPECT_TRUE(contains(end.terminal, waiting ? "no answer for " : " was broken off: "));
  EXPECT_LT(end.seen, 2);
}

// One run, killed at one place, resumed, killed at the next, ...: after each it begins at the
// checkpoint before the kill, and at the end it has the bits of a run that nobody disturbed.
void kill_again_and_again(int zero, const std::vector<Kill>& kills) {
  FaultyRun run({.zero = zero});
  for (size_t i = 0; i < kills.size(); ++i) {
    SCOPED_TRACE("ZeRO " + std::to_string(zero) + ", " + kills[i].at);
    const Fault fault{.kind = "kill", .rank = kills[i].rank, .at = kills[i].at};
    expect_lost(run.start(fault, /*resume=*/i > 0), kills[i]);
    if (i > 0) EXPECT_EQ(run.resumed_at(), static_cast<int>(5 * i));
  }
  expect_goes_on(run, static_cast<int>(5 * kills.size()));
}

TEST(Faults, KilledInAnyPartOfAStep) {
  side_by_side({[] {
                  kill_again_and_again(0, {{1, "step 7/forward", "step 7, forward"},
                                           {2, "step 12/backward", "step 12, backward"},
                                           {0, "step 17/update", "step 17, update"}});
                },
                [] {
                  kill_again_and_again(
                      3, {{0, "step 7/forward", "step 7, forward"},
                          {1, "step 12/sum of gradients", "step 12, sum of gradients"},
                          {2, "step 17/update", "step 17, update"}});
                }});
}

void kill_before_save(int zero, int rank) {
  FaultyRun run({.zero = zero});
  const std::string place = "checkpoint of step 15";
  expect_lost(run.start({.kind = "kill", .rank = rank, .at = place}), {rank, place, place});
  EXPECT_FALSE(std::filesystem::exists(run.checkpoint(15)));
  expect_goes_on(run, 10);
}

// While its shard is being written in the background: the checkpoint is whole or not there.
void kill_while_written(int zero, int rank) {
  FaultyRun run({.zero = zero});
  const Ended end =
      run.start({.kind = "kill_writing", .rank = rank, .at = "checkpoint of step 15"});
  expect_end(end, 5, {"rank " + std::to_string(rank) + " of 3 (process "});
  expect_goes_on(run, std::filesystem::exists(run.checkpoint(15)) ? 15 : 10);
}

TEST(Faults, KilledWhileSaving) {
  side_by_side({[] { kill_before_save(0, 0); }, [] { kill_before_save(3, 2); },
                [] { kill_while_written(3, 1); }});
}

}  // namespace
}  // namespace braid::test
