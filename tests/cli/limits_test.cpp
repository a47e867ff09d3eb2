// SPDX-License-Identifier: BSD-3-Clause
// Limits of the system and of settings: a sentence, the right exit code, and nothing lost.
#include <gtest/gtest.h>

#include <csignal>

#include "braid/checkpoint/store.h"
#include "cli/braid.h"
#include "support/address_space.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

struct Limits : Cli {
  // As a user types it after `ulimit ...` or before a pipe.
  Outcome shell(const std::string& before, const std::string& words,
                const std::string& behind = "") const {
    return run_command(
        {"/bin/bash", "-c", before + "; " + BRAID_COMMAND + " " + words + " " + behind});
  }
  std::string mlp() const { return "train " + config("mlp"); }
};

// The run goes on without a console, and can be stopped and saved as ever.
TEST_F(Limits, WhenTheReaderOfTheConsoleGoesTheRunGoesOn) {
  Command run({"/bin/bash", "-c",
               std::string("(echo $BASHPID > ") + at("pid") + "; exec " + BRAID_COMMAND +
                   " train " + config("long") +
                   " --set report.every=1 run.name=a) 2>&1 | "
                   "(read a; read b); sleep 30"});
  ASSERT_TRUE(run.saw(dir / "long/out.log", "no program reads the console any more"));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":9,"));
  const pid_t process = std::stoi(text_of(dir / "pid"));
  kill(process, SIGHUP);
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"reason\":\"signal\""));
  EXPECT_EQ(checkpoint::Store(dir / "long/checkpoints").list().size(), 1u);
}

TEST_F(Limits, AnIgnoredHangUpStaysIgnored) {
  Command run({"/bin/bash", "-c",
               std::string("trap '' HUP; exec ") + BRAID_COMMAND + " train " + config("long")});
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":3,"));
  run.send(SIGHUP);
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":99,"));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 75);
}

TEST_F(Limits, AFileAtItsSizeLimitIsAnErrorOfTheWrite) {
  expect_complaint(shell("ulimit -f 1", mlp()), Exit::storage, {"File too large", "ulimit -f"});
}

TEST_F(Limits, ThreadsThatCannotBeStartedAreASentence) {
  if (under_address_sanitizer()) GTEST_SKIP() << "no limit of address space holds";
  const Outcome done = shell("ulimit -v 3000000", mlp() + " --set data.workers=1000 --quiet");
  expect_complaint(done, Exit::config,
                   {"cannot start a thread to read data (data.workers)", "ulimit -v"});
}

TEST_F(Limits, OpenFilesThatRunOutAreNamed) {
  const std::string alone = "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-; ";  // of who runs the tests
  expect_complaint(shell(alone + "ulimit -n 6", mlp()), Exit::storage,
                   {"open files", "ulimit -n 1024"});
  expect_complaint(shell(alone + "ulimit -n 12", mlp() + " --ranks 2"), Exit::storage,
                   {"2 ranks of one host with at most 12 open files", "40", "ulimit -n 1024"});
}

TEST_F(Limits, SizesThatNothingCanHoldAreRefused) {
  expect_complaint(train("gpt", {"--set", "model.layers=1000000000"}), Exit::config,
                   {"model.layers = 1000000000 must be at most 10000", "cannot be held in memory"});
  expect_complaint(train("gpt", {"--set", "data.input_shape=[4194304, 4194304]"}), Exit::config,
                   {"data.input_shape", "1000000000000"});
  expect_complaint(braid_run({"schedule", "--ranks", "100000", "--micros", "100000"}), Exit::config,
                   {"1e+10 passes", "4000000"});
}

TEST_F(Limits, NumbersBelowTheSmallestNormalOnePrint) {
  const Outcome done = train("mlp", {"--quiet", "--set", "optimizer.lr=1e-310", "train.steps=2"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(fs::exists(dir / "mlp/report.html"));
}

TEST_F(Limits, ControlCharactersOfSettingsDoNotReachTheTerminal) {
  const Outcome done = train("mlp", {"--set", "mo\x1b[31m\x07=1"});
  EXPECT_EQ(done.code, 3);
  EXPECT_EQ(done.err.find('\x1b'), std::string::npos);
  EXPECT_EQ(done.err.find('\x07'), std::string::npos);
  EXPECT_TRUE(contains(done.err, "mo\\x1b[31m\\x07"));
}

TEST_F(Limits, SetTakesSeveralSettings) {
  const Outcome done =
      train("mlp", {"--set", "train.steps=2", "run.name=two", "--quiet", "--json"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(json_of(done)["step"], 2);
  EXPECT_TRUE(contains(text_of(dir / "mlp/config.yaml"), "name: two"));
  // In front of the config, and what is none stays a word of its own.
  const Outcome before =
      braid_run({"train", "--set", "run.dir=" + at("b"), "train.steps=1", config("mlp"), "--json"});
  EXPECT_EQ(json_of(before)["step"], 1) << before.err;
  expect_complaint(train("mlp", {"--set", "train.steps=2", "other.yaml"}), Exit::usage,
                   {"other.yaml"});
  expect_complaint(train("mlp", {"train.steps=2"}), Exit::usage, {"train.steps=2"});
}

}  // namespace
}  // namespace braid::test
