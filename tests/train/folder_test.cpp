// SPDX-License-Identifier: BSD-3-Clause
// Who may write into a run folder, and which folder a run takes.
#include "braid/train/folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "support/command.h"
#include "support/expect.h"
#include "support/files.h"
#include "train/folder_lock.h"
#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

double seconds_of(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string record_of_another(int beat, const std::string& token = "4711") {
  return "host far\npid 12\nsince 2026-11-19 22:08:39\nmachine another\ntoken " + token +
         "\nbeat " + std::to_string(beat) + "\n";
}

struct Folder : testing::Test {
  test::TempDir dir;
  fs::path file = dir / "run.lock";
  LockOptions quick{.wait = 0.3, .beat = 0.02, .silence = 0.1, .say = [this](const std::string& s) {
                      said += s;
                    }};
  std::string said;
};

TEST_F(Folder, HasOneWriterWhoIsNamed) {
  {
    const FolderLock lock(dir.path(), quick);
    const std::string text = error_of([&] { FolderLock(dir.path(), quick); });
    EXPECT_TRUE(contains(
        text, dir.path().string() + " is in use by process " + std::to_string(getpid()) + " on "));
    EXPECT_TRUE(contains(text, " since 2"));
    EXPECT_TRUE(contains(text, "did not end within 300 ms"));
    EXPECT_TRUE(contains(said, "waiting up to 300 ms for it to end"));
    lock.check();
  }
  EXPECT_FALSE(fs::exists(file));
  const FolderLock again(dir.path(), quick);
}

TEST_F(Folder, IsFreeAtOnceWhenItsOwnerWasKilled) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FolderLock lock(dir.path(), quick);
    if (write(ready[1], "x", 1) != 1) _exit(1);
    pause();
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(contains(error_of([&] { FolderLock(dir.path(), {}); }), std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(file));
  EXPECT_LT(seconds_of([&] { FolderLock(dir.path(), quick); }), 0.2);
  EXPECT_EQ(said, "");
}

TEST_F(Folder, IsHeldByTheProcessesThatItsOwnerStarted) {
  pid_t child = 0;
  {
    FolderLock lock(dir.path(), quick);
    lock.hold_in_children();
    child = fork();
    if (child == 0) execl("/bin/sleep", "sleep", "10", nullptr);
    // As if the owner had been killed: its file stays, and its own lock is gone.
    fs::rename(file, dir / "kept");
  }
  fs::rename(dir / "kept", file);
  EXPECT_TRUE(contains(error_of([&] { FolderLock(dir.path(), {}); }), "is in use by"));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const FolderLock lock(dir.path(), {});
}

TEST_F(Folder, IsTakenFromAnotherHostThatFellSilent) {
  std::ofstream(file) << record_of_another(1);
  const double seconds = seconds_of([&] { FolderLock(dir.path(), quick); });
  EXPECT_GE(seconds, 0.1);
  EXPECT_LT(seconds, 0.3);
  EXPECT_TRUE(contains(said, "is in use by process 12 on far since 2026-11-19 22:08:39"));
}

TEST_F(Folder, IsNotTakenFromAnotherHostWhoseHeartBeats) {
  std::atomic<bool> ended = false;
  std::thread other([&] {
    for (int beat = 100; !ended; ++beat) {
      std::ofstream(file) << record_of_another(beat);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  while (!fs::exists(file)) std::this_thread::yield();
  const std::string text = error_of([&] { FolderLock(dir.path(), quick); });
  ended = true;
  other.join();
  EXPECT_TRUE(contains(text, "if that process is gone: rm " + file.string()));
}

TEST_F(Folder, AnOwnerThatLostItStopsWriting) {
  const FolderLock lock(dir.path(), quick);
  std::ofstream(file) << record_of_another(1, "0815");
  std::string text;
  for (int i = 0; i < 200 && text.empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    try {
      lock.check();
    } catch (const FolderInUse& error) {
      text = error.what();
    }
  }
  EXPECT_TRUE(contains(text, "was taken over by process 12 on far"));
}

TEST_F(Folder, TheNextFreeNameIsTakenAndSaid) {
  const RunOptions options = run_of(mlp_run, {"run.dir=" + (dir / "my").string() + "/"});
  const RunFolder first(options, Use::fresh);
  EXPECT_EQ(first.number(), 1);
  EXPECT_EQ(first.note(), "");
  fs::create_directories(dir / "my-2/checkpoints/step-00000001");
  const RunFolder third(options, Use::fresh);
  EXPECT_EQ(third.number(), 3);
  EXPECT_TRUE(contains(third.note(), "my/ is in use by process"));
  EXPECT_TRUE(contains(third.note(), "this run goes into " + (dir / "my-3").string()));
  EXPECT_TRUE(contains(third.note(), "--set run.dir=" + (dir / "my-3").string() + " --resume"));
  EXPECT_EQ(numbered(run_of(mlp_run, {"run.name=gpt-2"}), 2).run.name, "gpt-2-2");
}

TEST_F(Folder, NothingIsLeftWhereNothingCame) {
  const RunOptions options = run_of(mlp_run, {"run.dir=" + (dir / "my").string()});
  {
    const RunFolder folder(options, Use::fresh);
  }
  EXPECT_FALSE(fs::exists(dir / "my"));
}

TEST_F(Folder, ALogOfStepsIsARunAndThatOfAProfileIsNone) {
  const std::string step = R"({"type":"step","step":1})";
  std::ofstream(dir / "log.jsonl") << R"({"type":"run"})" << "\n";
  EXPECT_FALSE(holds_run(dir.path()));
  std::ofstream(dir / "log.jsonl") << R"({"type":"run"})" << "\n" << step << "\n";
  EXPECT_TRUE(holds_run(dir.path()));
  std::ofstream(dir / "log.jsonl", std::ios::app)
      << R"({"type":"end","time":1,"step":1,"reason":"profile"})" << "\n";
  EXPECT_FALSE(holds_run(dir.path()));
}

TEST_F(Folder, WhatCannotBeSeenIsNotTakenForNone) {
  fs::create_directory(dir / "my");
  fs::create_symlink(dir / "my/checkpoints", dir / "my/checkpoints");
  const RunOptions options = run_of(mlp_run, {"run.dir=" + (dir / "my").string()});
  for (const Use use : {Use::fresh, Use::resume, Use::profile})
    EXPECT_TRUE(contains(error_of([&] { RunFolder(options, use); }), "cannot list"));
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "my"), {}), 1);  // nothing was written
  fs::remove(dir / "my/checkpoints");
  ASSERT_EQ(mkfifo((dir / "my/log.jsonl").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of([&] { RunFolder(options, Use::resume); }), "a named pipe"));
}

TEST_F(Folder, ANameIsNoPath) {
  const auto refusal = [](const std::string& name) {
    RunOptions options;
    options.run.name = name;
    return error_of([&] { RunFolder(options, Use::fresh); });
  };
  for (const std::string name : {"", ".", "..", "a/b", "../../evil", "/tmp/x"})
    EXPECT_TRUE(contains(refusal(name), "run.name = \"" + name + "\" is not the name of a folder"));
  for (const std::string& name :
       {std::string("a\nb"), std::string("\x1b[1m"), std::string(2, '\0')})
    EXPECT_TRUE(contains(refusal(name), "run.name contains a control character"));
  EXPECT_TRUE(contains(refusal(std::string(300, 'x')), "run.name has 300 bytes, at most 200"));
}

}  // namespace
}  // namespace braid::train
