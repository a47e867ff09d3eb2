// SPDX-License-Identifier: BSD-3-Clause
// Several `braid train` at the same time, or one after the other, in one run folder.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <sstream>

#include "braid/checkpoint/store.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

// The steps of a log, in its order.
std::vector<int64_t> steps_in(const fs::path& file) {
  std::vector<int64_t> steps;
  std::istringstream lines(text_of(file));
  for (std::string line; std::getline(lines, line);)
    if (const auto record = nlohmann::json::parse(line); record["type"] == "step")
      steps.push_back(record["step"]);
  return steps;
}

void expect_whole(const fs::path& run) {
  const std::vector<int64_t> steps = steps_in(run / "log.jsonl");
  ASSERT_FALSE(steps.empty());
  for (size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<int64_t>(i) + 1);
  const auto found = checkpoint::Store(run / "checkpoints").newest();
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->skipped.empty());
  EXPECT_EQ(found->snapshot.step, steps.back());
}

TEST_F(Cli, TwoProcessesDoNotShareARunFolder) {
  Command first(braid_words({"train", config("long"), "--set", "checkpoint.every=10"}));
  ASSERT_TRUE(first.saw(dir / "long/log.jsonl", "\"step\":3,")) << first.err();
  const Outcome resumed = train("long", {"--resume", "--set", "run.wait=100ms"});
  expect_complaint(
      resumed, Exit::config,
      {at("long") + " is in use by process " + std::to_string(first.process()) + " on ", " since 2",
       "waiting up to 100 ms", "did not end within 100 ms"});
  const Outcome other = train("long", {"--json", "--set", "train.steps=2"});
  EXPECT_EQ(json_of(other)["dir"], at("long-2"));
  EXPECT_TRUE(contains(other.err, "this run goes into " + at("long-2")));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 75);
  expect_whole(dir / "long");
  EXPECT_FALSE(fs::exists(dir / "long/run.lock"));
}

TEST_F(Cli, ARequeuedRunWaitsForTheOneThatEnds) {
  Command first(braid_words({"train", config("long")}));
  ASSERT_TRUE(first.saw(dir / "long/log.jsonl", "\"step\":3,")) << first.err();
  Command second(braid_words({"train", config("long"), "--resume"}));
  for (int i = 0; i < 2000 && second.err().find("waiting up to 20 s") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  first.send(SIGTERM);
  EXPECT_EQ(first.wait().code, 75);
  const int64_t step = steps_in(dir / "long/log.jsonl").back();
  EXPECT_TRUE(second.saw(dir / "long/log.jsonl", "\"step\":" + std::to_string(step + 2) + ","));
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().code, 75);
  expect_whole(dir / "long");
}

TEST_F(Cli, RanksOfOneLauncherShareTheirFolderAndNoOther) {
  const Words two = {"--ranks", "2", "--set", "launch.timeout=20s"};
  ASSERT_EQ(train("mlp", two).code, 0);
  const std::string log = text_of(dir / "mlp/logs/rank-1.log");
  const Outcome again = train("mlp", two);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, "results are in " + at("mlp-2")));
  EXPECT_TRUE(contains(again.err, "braid: " + at("mlp") + " already holds a run"));
  EXPECT_EQ(text_of(dir / "mlp/logs/rank-1.log"), log);
  for (const char* name : {"logs/rank-1.log", "log.jsonl", "checkpoints/step-00000012"})
    EXPECT_TRUE(fs::exists(dir / "mlp-2" / name)) << name;
  EXPECT_FALSE(fs::exists(dir / "mlp-2/run.lock"));
}

// As torchrun starts them: rank 0 decides, the other one hears it.
TEST_F(Cli, RanksOfAnotherLauncherAgreeOnTheFolder) {
  ASSERT_EQ(train("mlp", {"--quiet"}).code, 0);
  const std::string port = std::to_string(20000 + getpid() % 20000);
  const auto rank = [&](const std::string& number, const std::string& exists) {
    return Words{"/usr/bin/env",
                 "RANK=" + number,
                 "WORLD_SIZE=2",
                 "LOCAL_RANK=" + number,
                 "LOCAL_WORLD_SIZE=2",
                 "MASTER_ADDR=127.0.0.1",
                 "MASTER_PORT=" + port,
                 BRAID_COMMAND,
                 "train",
                 config("mlp"),
                 "--set",
                 "launch.timeout=20s",
                 "--set",
                 "run.exists=" + exists};
  };
  for (const char* exists : {"next", "refuse"}) {
    Command zero(rank("0", exists)), one(rank("1", exists));
    const Outcome done = zero.wait(), other = one.wait();
    const bool next = exists == std::string("next");
    EXPECT_EQ(done.code, next ? 0 : 3) << done.err;
    EXPECT_EQ(other.code, next ? 0 : 3) << other.err;
    if (next) EXPECT_TRUE(contains(done.out, "results are in " + at("mlp-2")));
    if (!next) EXPECT_TRUE(contains(other.err, "already holds a run"));
  }
}

TEST_F(Cli, PathsThatCannotBeUsedAreStorageErrors) {
  const std::string path = "/" + std::string(6000, 'x');
  const std::vector<Words> commands = {{"train", config("mlp"), "--set", "run.dir=" + path},
                                       {"eval", path},
                                       {"predict", path},
                                       {"convert", path, at("x")}};
  for (const Words& words : commands)
    expect_complaint(braid_run(words), Exit::storage, {"File name too long", "shorter path"});
  expect_complaint(
      train("mlp", {"--set", "run.dir=", "--set", "run.name=" + std::string(300, 'x')}),
      Exit::config, {"run.name has 300 bytes"});
  expect_complaint(train("mlp", {"--set", "run.dir=", "--set", "run.name=../../evil"}),
                   Exit::config, {"is not the name of a folder"});
}

TEST_F(Cli, AFolderWithoutPermissionIsAStorageError) {
  fs::permissions(dir.path(), fs::perms::all);
  fs::create_directories(dir / "mlp/checkpoints");
  std::ofstream(dir / "mlp/log.jsonl") << "{}\n";
  fs::permissions(dir / "mlp", fs::perms::all);
  fs::permissions(dir / "mlp/checkpoints", fs::perms::none);
  for (const Words& more : {Words{"--resume"}, Words{}}) {
    Words words = {"train", config("mlp"), "--quiet"};
    words.insert(words.end(), more.begin(), more.end());
    Command run(braid_words(words), /*uid=*/65534);
    const Outcome done = run.wait();
    if (done.code == 126) GTEST_SKIP() << "cannot become another user";
    expect_complaint(done, Exit::storage, {"cannot list " + at("mlp/checkpoints")});
  }
  EXPECT_EQ(text_of(dir / "mlp/log.jsonl"), "{}\n");
  EXPECT_FALSE(fs::exists(dir / "mlp/run.lock"));
  fs::permissions(dir / "mlp/checkpoints", fs::perms::all);
}

}  // namespace
}  // namespace braid::test
