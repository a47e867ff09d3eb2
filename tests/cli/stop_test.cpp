// SPDX-License-Identifier: BSD-3-Clause
// Ctrl-C, SIGTERM, SIGUSR1, SIGHUP and SIGXCPU on a running `braid train`, and going on afterwards.
#include <gtest/gtest.h>

#include <sstream>

#include "braid/checkpoint/store.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

struct Stopped : Cli, testing::WithParamInterface<int> {};

TEST_P(Stopped, SavesExitsWith75AndGoesOn) {
  Command run(braid_words({"train", config("long")}));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":3,")) << run.err();
  run.send(GetParam());
  const Outcome done = run.wait();
  EXPECT_EQ(done.code, 75) << done.err;
  const checkpoint::Store store(dir / "long/checkpoints");
  ASSERT_EQ(store.list().size(), 1u);
  const int64_t step = checkpoint::load(store.list()[0]).step;
  EXPECT_GE(step, 3);
  const Outcome more =
      train("long", {"--resume", "--json", "--set", "train.steps=" + std::to_string(step + 4)});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(json_of(more)["step"], step + 4);
  EXPECT_EQ(json_of(more)["reason"], "steps");
  // Every step is in the log once.
  const std::string log = text_of(dir / "long/log.jsonl");
  for (const int64_t wanted : {int64_t{1}, step, step + 1, step + 4}) {
    const std::string word = "\"type\":\"step\"";
    int found = 0;
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);)
      found +=
          line.find(word) != std::string::npos && nlohmann::json::parse(line)["step"] == wanted;
    EXPECT_EQ(found, 1) << "step " << wanted;
  }
}

INSTANTIATE_TEST_SUITE_P(Signals, Stopped,
                         testing::Values(SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU));

// Killed without warning: what was saved before is there, and the log has each step once.
TEST_F(Cli, KilledRunGoesOnFromItsLastCheckpoint) {
  Command run(braid_words({"train", config("long"), "--set", "checkpoint.every=10"}));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "step-00000020")) << run.err();
  run.send(SIGKILL);
  EXPECT_EQ(run.wait().code, 128 + SIGKILL);
  const int64_t step = checkpoint::Store(dir / "long/checkpoints").newest()->snapshot.step;
  const Outcome more =
      train("long", {"--resume", "--json", "--set", "train.steps=" + std::to_string(step + 3)});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(json_of(more)["step"], step + 3);
}

TEST_F(Cli, ResumeOfAFinishedRunEndsAtOnce) {
  ASSERT_EQ(train("mlp", {"--quiet"}).code, 0);
  const Outcome again = train("mlp", {"--resume", "--json"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(json_of(again)["step"], 12);
  EXPECT_TRUE(json_of(again)["metrics"].contains("accuracy"));
}

}  // namespace
}  // namespace braid::test
