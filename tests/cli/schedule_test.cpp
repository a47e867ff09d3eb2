// SPDX-License-Identifier: BSD-3-Clause
// braid schedule: lists of actions, timed, drawn, written and read again.
#include <gtest/gtest.h>

#include "cli/braid.h"

namespace braid::test {
namespace {

TEST_F(Cli, SchedulePrintsListsAndTimes) {
  const Outcome done = braid_run({"schedule", "--kind", "1f1b", "--ranks", "2", "--micros", "3"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part : {"rank 0: F0 F1 B0 F2 B1 B2", "in flight", "1f1b: time 12, idle 25.00 %"})
    EXPECT_TRUE(contains(done.out, part));
}

TEST_F(Cli, ScheduleSaysTheSameInJson) {
  const Outcome done = braid_run({"schedule", "--kind", "interleaved", "--ranks", "4", "--micros",
                                  "8", "--chunks", "2", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const nlohmann::json json = json_of(done);
  EXPECT_EQ(json["makespan"], 28.5);
  EXPECT_EQ(json["rank_of"].size(), 8u);
  EXPECT_EQ(json["ranks"][0]["in_flight"], 11);
  EXPECT_EQ(json["ranks"][3]["stages"], nlohmann::json({3, 7}));
  const nlohmann::json stashed = json_of(
      braid_run({"schedule", "--kind", "pipedream", "--ranks", "3", "--micros", "9", "--json"}));
  EXPECT_EQ(stashed["versions"], nlohmann::json({3, 2, 1}));
}

TEST_F(Cli, ScheduleWritesFilesAndReadsThemAgain) {
  const Outcome made = braid_run({"schedule", "--kind", "zb_v", "--ranks", "2", "--micros", "4",
                                  "--svg", at("v.svg"), "--yaml", at("v.yaml")});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(contains(text_of(at("v.svg")), "<svg"));
  const Outcome again = braid_run({"schedule", "--file", at("v.yaml"), "--yaml", at("w.yaml")});
  ASSERT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(text_of(at("v.yaml")), text_of(at("w.yaml")));
}

TEST_F(Cli, ScheduleRefusesABrokenList) {
  std::ofstream(dir / "own.yaml") << "ranks: 2\nmicros: 1\nlists:\n"
                                     "  - [F0, RG0, B0]\n  - [RA0, F0, B0, SG0]\n";
  const Outcome done = braid_run({"schedule", "--file", at("own.yaml")});
  EXPECT_EQ(done.code, static_cast<int>(Exit::config));
  EXPECT_TRUE(contains(done.err, "rank 0: SA0@0 is missing"));
  const Outcome kind = braid_run({"schedule", "--kind", "1fb1"});
  EXPECT_EQ(kind.code, static_cast<int>(Exit::config));
  EXPECT_TRUE(contains(kind.err, "write 1f1b"));
  const Outcome limit = braid_run({"schedule", "--kind", "gpipe", "--limit", "4"});
  EXPECT_TRUE(contains(limit.err, "makes 5 micro-batches in flight"));
}

}  // namespace
}  // namespace braid::test
