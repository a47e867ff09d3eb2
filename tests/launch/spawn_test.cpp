// SPDX-License-Identifier: BSD-3-Clause
// The launcher, with small shell scripts as ranks.
#include "braid/launch/spawn.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <cstdlib>
#include <mutex>

#include "braid/comm/store.h"
#include "launch/processes.h"
#include "support/command.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;
using test::TempDir;
using test::text_of;

class Spawn : public testing::Test {
 protected:
  // Runs `script` as three ranks; $MARK is in the command line of each.
  int run(const std::string& script) {
    options_.ranks = 3;
    options_.command = {"/bin/sh", "-c", script, mark()};
    options_.log_dir = dir_ / "logs";
    options_.talk_seconds = talk_;
    options_.grace_seconds = 0.5;
    options_.early_seconds = 0.5;
    options_.launch.timeout = {20};
    options_.say = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      said_ += line + "\n";
    };
    const auto start = std::chrono::steady_clock::now();
    const int code = spawn(options_);
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    EXPECT_TRUE(test::eventually([&] { return test::processes_with(mark()).empty(); }));
    return code;
  }
  std::string said() {
    const std::lock_guard lock(mutex_);
    return said_;
  }
  std::string mark() const { return "mark-" + dir_.path().filename().string(); }
  std::string file(const std::string& name) const { return (dir_ / name).string(); }
  // Sends signals to this thread from another once `ready` exists as often as there are ranks.
  std::thread signals_when_ready(std::vector<int> signals) {
    return std::thread([this, signals, self = pthread_self()] {
      for (const int signal : signals) {
        EXPECT_TRUE(test::eventually([&] { return text_of(file("ready")).size() >= 6; }));
        pthread_kill(self, signal);
        std::this_thread::sleep_for(std::chrono::milliseconds(150));
      }
    });
  }
  std::string ready() const { return "echo $RANK >> " + file("ready") + "; "; }

  TempDir dir_;
  double talk_ = 0.3;
  SpawnOptions options_;
  std::mutex mutex_;
  std::string said_;
  double seconds_ = 0;
};

TEST_F(Spawn, TheOthersMaySayWhatTheyLost) {
  talk_ = 20;
  const std::string said = (dir_ / "said").string();
  EXPECT_EQ(
      run("if [ $RANK = 1 ]; then kill -9 $$; fi; sleep 0.15; echo $RANK >> " + said + "; exit 5"),
      5);
  EXPECT_EQ(text_of(said).size(), 4U) << text_of(said);  // two lines
  EXPECT_TRUE(contains(said_, "was killed by SIGKILL; the other ranks are ended"));
}

TEST_F(Spawn, EachRankKnowsItsPlaceAndHasALog) {
  EXPECT_EQ(run("echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $BRAID_STORE; "
                "echo $BRAID_JOB_TOKEN $MASTER_PORT >&2; "
                "[ $RANK = 0 ] || exit 0; cp /dev/null " +
                file("zero")),
            0);
  EXPECT_EQ(said(), "");
  const std::string one = text_of(dir_ / "logs/rank-1.log"),
                    two = text_of(dir_ / "logs/rank-2.log");
  EXPECT_TRUE(contains(one, "1 3 1 3 127.0.0.1 served\n"));
  EXPECT_TRUE(contains(two, "2 3 2 3 127.0.0.1 served\n"));
  EXPECT_EQ(one.substr(one.find('\n')), two.substr(two.find('\n')));  // one token, one port
  EXPECT_GT(one.size(), 60U);
  EXPECT_TRUE(std::filesystem::exists(file("zero")));
}

TEST_F(Spawn, RanksShareTheCoresOfTheHost) {
  options_.here.cores = {0, 1, 2, 3};
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string restored = before == nullptr ? "" : before;
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(run("echo threads $OMP_NUM_THREADS"), 0);
  if (!restored.empty()) ::setenv("OMP_NUM_THREADS", restored.c_str(), 1);
  EXPECT_TRUE(contains(text_of(dir_ / "logs/rank-1.log"), "threads 2\n"));  // of 4 cores, 3 ranks
}

TEST_F(Spawn, NamesTheRankThatWasKilled) {
  EXPECT_EQ(run("[ $RANK = 2 ] || exec sleep 30; echo last words; kill -9 $$"), 5);
  EXPECT_TRUE(contains(said(), "rank 2 of 3 (process "));
  EXPECT_TRUE(contains(said(), "was killed by SIGKILL; the other ranks are ended"));
  EXPECT_TRUE(contains(said(), "logs/rank-2.log\n    last words"));
  EXPECT_LT(seconds_, 2);
}

TEST_F(Spawn, KillsWhatDoesNotEndByItself) {
  EXPECT_EQ(run("trap '' TERM; [ $RANK = 1 ] && exit 4; while true; do sleep 0.1; done"), 4);
  EXPECT_TRUE(contains(said(), "rank 1 of 3"));
  EXPECT_TRUE(contains(said(), "ended with exit code 4"));
  EXPECT_LT(seconds_, 2);
}

// Rank 0 notices first that rank 1 is gone, and says so by exit code 5. Rank 1 is to blame.
TEST_F(Spawn, BlamesTheCauseNotTheFirstToLeave) {
  EXPECT_EQ(run("case $RANK in 0) exit 5;; 1) sleep 0.2; exit 6;; 2) exec sleep 30;; esac"), 6);
  EXPECT_TRUE(contains(said(), "rank 1 of 3"));
  EXPECT_TRUE(contains(said(), "ended with exit code 6"));
}

TEST_F(Spawn, ALostConnectionAloneIsExitCode5) {
  EXPECT_EQ(run("[ $RANK = 1 ] || exec sleep 30; exit 5"), 5);
  EXPECT_TRUE(contains(said(), "rank 1 of 3"));
}

TEST_F(Spawn, NamesTheRankThatLeftTooEarly) {
  EXPECT_EQ(run("[ $RANK = 2 ] || exec sleep 30; exit 0"), 5);
  EXPECT_TRUE(contains(said(), "rank 2 of 3"));
  EXPECT_TRUE(contains(said(), "left too early, with exit code 0"));
}

// The others notice by themselves, before the launcher loses its patience.
TEST_F(Spawn, BlamesWhoLeftIfTheOthersLostIt) {
  EXPECT_EQ(run("[ $RANK = 2 ] && exit 0; sleep 0.1; exit 5"), 5);
  EXPECT_TRUE(contains(said(), "rank 2 of 3"));
  EXPECT_TRUE(contains(said(), "left too early, with exit code 0"));
}

// Rank 0 has the terminal; what the others say of it is in their logs.
TEST_F(Spawn, ShowsWhatIsSaidOfRank0) {
  // It goes when the others are there: they are asked to end as soon as it is lost.
  EXPECT_EQ(run("trap '' TERM; [ $RANK = 0 ] && { sleep 0.3; kill -9 $$; }; sleep 0.5; "
                "echo rank 0 is gone; exit 5"),
            5);
  EXPECT_TRUE(contains(said(), "rank 0 of 3"));
  EXPECT_TRUE(contains(said(), "logs/rank-1.log\n    rank 0 is gone"));
}

TEST_F(Spawn, NamesTheRankThatIsStopped) {
  options_.launch.timeout = {20};
  EXPECT_EQ(run("case $RANK in 1) kill -STOP $$;; *) sleep 0.3; exit 5;; esac"), 5);
  EXPECT_TRUE(contains(said(), "rank 1 of 3"));
  EXPECT_TRUE(contains(said(), "is stopped by SIGSTOP"));
  EXPECT_TRUE(contains(said(), "was stopped for too long"));
  EXPECT_LT(seconds_, 4);
}

TEST_F(Spawn, ARankThatWakesUpAgainIsForgiven) {
  EXPECT_EQ(run("if [ $RANK = 1 ]; then (sleep 0.2; kill -CONT $$) & kill -STOP $$; fi; sleep 0.4"),
            0);
  EXPECT_TRUE(contains(said(), "is stopped by SIGSTOP"));
  EXPECT_TRUE(contains(said(), "goes on"));
}

TEST_F(Spawn, PassesSignalsOnOnceAndSaysThatAllWereSaved) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    std::filesystem::remove(file("ready"));
    std::filesystem::remove(file("got"));
    std::thread sender = signals_when_ready({signal});
    const std::string note = "echo x >> " + file("got") + "; exit 75";
    EXPECT_EQ(
        run("trap '" + note + "' INT TERM USR1; " + ready() + "while true; do sleep 0.05; done"),
        75);
    sender.join();
    EXPECT_EQ(text_of(file("got")), "x\nx\nx\n") << signal;
    EXPECT_EQ(said(), "");
  }
}

TEST_F(Spawn, CtrlCBeforeARankCanHandleItEndsAllInSilence) {
  std::thread sender = signals_when_ready({SIGINT});
  EXPECT_EQ(run(ready() + "[ $RANK = 2 ] && trap '' INT; while true; do sleep 0.05; done"), 130);
  sender.join();
  EXPECT_EQ(said(), "");
}

TEST_F(Spawn, ASecondCtrlCKillsAll) {
  std::thread sender = signals_when_ready({SIGINT, SIGINT});
  EXPECT_EQ(run("trap '' INT TERM; " + ready() + "while true; do sleep 0.05; done"), 130);
  sender.join();
  EXPECT_TRUE(contains(said(), "a second Ctrl-C: all ranks are killed"));
}

// nohup ignores SIGHUP: the terminal may go, the ranks stay.
TEST_F(Spawn, AnIgnoredHangupStaysIgnored) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  std::thread sender = signals_when_ready({SIGHUP});
  EXPECT_EQ(run(ready() + "sleep 0.5"), 0);
  sender.join();
  ::signal(SIGHUP, before);
  EXPECT_EQ(said(), "");
}

// Some programs and shells start others with SIGCHLD ignored, which would swallow exit codes.
TEST_F(Spawn, HearsOfExitCodesWhereSigchldWasIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run("[ $RANK = 1 ] && exit 4; exec sleep 30"), 4);
  EXPECT_EQ(::signal(SIGCHLD, before), SIG_IGN);
  EXPECT_TRUE(contains(said(), "ended with exit code 4"));
}

TEST_F(Spawn, EndsWhatARankStarted) {
  EXPECT_EQ(run("if [ $RANK = 1 ]; then sleep 0.3; exit 4; fi; trap '' TERM; "
                "sh -c 'trap \"\" TERM; while true; do sleep 0.1; done' " +
                mark()),
            4);
}

TEST_F(Spawn, WhatCannotStartIsNamed) {
  options_.ranks = 2;
  options_.command = {"/no/such/program"};
  options_.log_dir = dir_ / "logs";
  options_.say = [this](const std::string& line) { said_ += line; };
  EXPECT_EQ(spawn(options_), 127);
  EXPECT_TRUE(contains(said(), "ended with exit code 127"));
}

TEST_F(Spawn, AFixedPortInUseIsRefused) {
  const comm::Store other = comm::Store::tcp({.server = true});
  options_.launch.port = other.port();
  EXPECT_TRUE(contains(test::error_of([&] { run("exit 0"); }), "is in use"));
}

// As a process of its own, to be killed.
TEST(Launcher, DISABLED_OfThreeSleepers) {
  const std::string mark = std::getenv("BRAID_TEST_MARK");
  spawn({.ranks = 3,
         .command = {"/bin/sh", "-c", "trap '' TERM HUP INT; while true; do sleep 0.1; done", mark},
         .log_dir = std::getenv("BRAID_TEST_DIR")});
}

TEST(Launcher, KilledLeavesNobodyBehind) {
  const TempDir dir;
  const std::string mark = "mark-" + dir.path().filename().string();
  setenv("BRAID_TEST_MARK", mark.c_str(), 1);
  setenv("BRAID_TEST_DIR", dir.path().c_str(), 1);
  test::Command launcher(test::again("Launcher.DISABLED_OfThreeSleepers"));
  EXPECT_TRUE(test::eventually([&] { return test::processes_with(mark).size() == 3; }));
  launcher.send(SIGKILL);
  EXPECT_EQ(launcher.wait().code, 128 + SIGKILL);
  EXPECT_TRUE(test::eventually([&] { return test::processes_with(mark).empty(); }));
}

TEST(Launcher, OwnCommandIsThisProgram) {
  const std::vector<std::string> words = own_command();
  EXPECT_EQ(words[0], std::filesystem::read_symlink("/proc/self/exe").string());
}

}  // namespace
}  // namespace braid::launch
