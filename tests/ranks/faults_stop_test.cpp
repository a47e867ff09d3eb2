// SPDX-License-Identifier: BSD-3-Clause
// Ranks that stop, throw, leave, hang or have another shape; Ctrl-C.
#include <csignal>

#include "ranks/faulty_rank.h"

namespace braid::test {
namespace {

struct Row {
  Fault fault;
  int code;
  std::vector<std::string> parts;  // of what the terminal shows
};

void expect_rows(const std::vector<Row>& rows, int zero) {
  std::vector<std::function<void()>> bodies;
  for (const Row& row : rows)
    bodies.emplace_back([&row, zero] {
      FaultyRun run({.zero = zero});
      expect_end(run.start(row.fault), row.code, row.parts);
      expect_goes_on(run, 10);
    });
  side_by_side(bodies);
}

TEST(Faults, ARankThatStandsStill) {
  expect_rows({{{.kind = "stop", .rank = 1, .at = "step 12/backward"},
                5,
                {"rank 1 did not arrive; it last did: step 12, backward (no sign of life for",
                 "no answer for 3 s: all_reduce sum Float [3410] of group data",
                 "is stopped by SIGSTOP", "was stopped for too long"}},
               {{.kind = "hang", .rank = 0, .at = "step 12/sum of gradients"},
                5,
                {"rank 0 did not arrive; it last did: step 12, sum of gradients\n",
                 "no answer for 3 s: all_reduce sum Float"}}},
              /*zero=*/0);
}

TEST(Faults, ARankThatThrowsOrLeaves) {
  expect_rows(
      {{{.kind = "throw", .rank = 2, .at = "step 12/backward"},
        6,
        {"rank 2 left: the loss is nan at step 12; ranks 0, 1 were in ", "ended with exit code 6"}},
       {{.kind = "exit", .rank = 1, .at = "step 12/update"},
        5,
        {"rank 1 is gone; it last did: step 12, update (no sign of life for",
         "left too early, with exit code 0"}},
       {{.kind = "return", .rank = 2, .at = "step 12/forward"},
        5,
        {"rank 2 ended too early; it last did: step 12, forward; ranks 0, 1 were in ",
         "left too early, with exit code 0"}}},
      /*zero=*/3);
}

TEST(Faults, ARankWithAnotherShape) {
  FaultyRun run;
  expect_end(run.start({.kind = "shape", .rank = 2}), 5,
             {"Replicate was given other parameters on rank 2 than on rank 0: parameter 3 is "
              "network.3.weight Float [49, 64] there and network.3.weight Float [48, 64] here"});
}

TEST(Faults, CtrlCSavesAndASecondOneKills) {
  FaultyRun once, twice;
  side_by_side({[&] {
                  FaultyJob job = once.begin({.kind = "await_go", .at = "step 12/forward"});
                  ASSERT_TRUE(job.saw("there", "yes"));
                  job.send(SIGINT);
                  std::this_thread::sleep_for(std::chrono::milliseconds(300));
                  once.write("go");
                  expect_end(once.ended(job.wait()), 75, {});
                },
                [&] {
                  FaultyJob job = twice.begin({.kind = "hang", .at = "step 12/forward"});
                  ASSERT_TRUE(job.saw("fault", "."));
                  job.send(SIGINT);
                  std::this_thread::sleep_for(std::chrono::milliseconds(300));
                  job.send(SIGINT);
                  expect_end(twice.ended(job.wait()), 130,
                             {"a second Ctrl-C: all ranks are killed"});
                }});
  side_by_side({[&] { expect_goes_on(once, 13); }, [&] { expect_goes_on(twice, 10); }});
}

}  // namespace
}  // namespace braid::test
