// SPDX-License-Identifier: BSD-3-Clause
// `braid train --ranks N` as a user sees it when something happens to a rank or the terminal.
#include <gtest/gtest.h>

#include <sstream>

#include "cli/braid.h"

namespace braid::test {
namespace {

struct LocalRanks : Cli {
  Words words(const std::string& name) const {
    return braid_words({"train", config(name), "--ranks", "3", "--set", "train.global_batch=15",
                        "--set", "launch.timeout=20s"});
  }
  // The processes of the ranks, by their run folder in the command line.
  std::vector<pid_t> ranks() const {
    std::vector<pid_t> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string line = text_of(entry.path() / "cmdline");
      if (line.find(config("long")) != std::string::npos &&
          line.find("--ranks") == std::string::npos)
        found.push_back(std::stoi(entry.path().filename().string()));
    }
    return found;
  }
  bool none_left() const {
    for (int i = 0; i < 1000 && !ranks().empty(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return ranks().empty();
  }
};

TEST_F(LocalRanks, WriteOneConsoleAndALogEach) {
  const Outcome done = run_command(words("mlp"));
  EXPECT_EQ(done.code, 0) << done.err;
  size_t endings = 0;
  for (size_t at = 0; (at = done.err.find("DONE ----", at)) != std::string::npos; ++at) ++endings;
  EXPECT_EQ(endings, 1u) << done.err;
  for (const char* log : {"mlp/logs/rank-1.log", "mlp/logs/rank-2.log"})
    EXPECT_TRUE(std::filesystem::exists(dir / log)) << log;
  EXPECT_FALSE(std::filesystem::exists(dir / "mlp/logs/rank-0.log"));  // the terminal's
}

TEST_F(LocalRanks, CtrlCSavesOnceAndAllGoOn) {
  Command run(words("long"));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":20,")) << run.err();
  run.send(SIGINT);
  const Outcome done = run.wait();
  EXPECT_EQ(done.code, 75) << done.err;
  EXPECT_TRUE(none_left());
  const auto saved = std::filesystem::directory_iterator(dir / "long/checkpoints");
  const int64_t step = std::stoll(saved->path().filename().string().substr(5));
  Words more = words("long");
  more.insert(more.end(),
              {"--resume", "--json", "--set", "train.steps=" + std::to_string(step + 4)});
  const Outcome after = run_command(more);
  EXPECT_EQ(after.code, 0) << after.err;
  EXPECT_EQ(json_of(after)["step"], step + 4);
}

TEST_F(LocalRanks, AKilledRankIsNamedAndTheOthersEnd) {
  Command run(words("long"));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":20,")) << run.err();
  ASSERT_EQ(ranks().size(), 3u);
  kill(ranks()[1], SIGKILL);
  const Outcome done = run.wait();
  EXPECT_EQ(done.code, static_cast<int>(Exit::comm)) << done.err;
  EXPECT_TRUE(contains(done.err, "was killed by SIGKILL; the other ranks are ended"));
  EXPECT_TRUE(none_left());
}

TEST_F(LocalRanks, NobodyIsLeftWhenTheLauncherIsKilled) {
  Command run(words("long"));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":20,")) << run.err();
  run.send(SIGKILL);
  run.wait();
  EXPECT_TRUE(none_left());
}

TEST_F(LocalRanks, OfMpiAreStartedByMpirun) {
  Words more = words("mlp");
  more.insert(more.end(), {"--set", "launch.backend=mpi"});
  expect_complaint(run_command(more), Exit::config,
                   {"launch.backend = mpi in 3 ranks that braid starts", "mpirun -n 3"});
}

TEST_F(LocalRanks, AreNotStartedByARank) {
  setenv("RANK", "0", 1);
  setenv("WORLD_SIZE", "2", 1);
  const Outcome done = run_command(words("mlp"));
  unsetenv("RANK");
  unsetenv("WORLD_SIZE");
  expect_complaint(done, Exit::config, {"--ranks 3 in a process that torchrun started as rank 0"});
}

}  // namespace
}  // namespace braid::test
