// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of several ranks while they are written: threads, full disks, killed ranks.
#include "checkpoint/writing.h"

#include <ATen/ops/ones.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "checkpoint/layouts.h"
#include "checkpoint/staging.h"
#include "support/expect.h"
#include "support/files.h"
#include "support/ranks.h"

namespace {

std::function<void(int)> before_fsync;

}  // namespace

// This program's calls come here instead of the C library.
extern "C" int fsync(int file) {
  if (before_fsync) before_fsync(file);
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

const std::atomic<bool> staying = false;

// Every save has a token of its own, also a second one of the same step.
int attempt = 0;

// What Store::save gives to the thread of a rank, without a group: ranks may be processes that die.
Job job_of(const fs::path& dir, int64_t step, int rank, int ranks, double timeout = 10) {
  std::vector<std::vector<Holding>> all;
  for (int r = 0; r < ranks; ++r)
    all.push_back(holdings_of(state_of(Layout::flat, r, ranks, step)));
  const State mine = state_of(Layout::flat, rank, ranks, step);
  const std::string name = fmt::format("step-{:08}", step);
  const std::string token = fmt::format("t{}-{}", step, attempt);
  Job job{.temporary = dir / (name + ".tmp-" + token),
          .target = dir / name,
          .plans = plan_shards(holdings_of(mine), runs_of(all, rank), rank, ranks),
          .manifest = {},
          .files = {},
          .rank = rank,
          .options = {.keep = 2, .timeout = {timeout}}};
  job.manifest.step = step;
  job.manifest.world = ranks;
  job.manifest.token = token;
  take_late(job.plans, mine);
  return job;
}

void write_all_ranks(const fs::path& dir, int64_t step, int ranks) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([=] {
      Job job = job_of(dir, step, rank, ranks);
      write_checkpoint(job, staying);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Writing, AMissingRankIsNamedAndTheOldOneStays) {
  const test::TempDir dir;
  write_all_ranks(dir.path(), 1, 4);
  std::thread other([&] {
    Job job = job_of(dir.path(), 2, 1, 4, 2.0);
    EXPECT_TRUE(
        contains(error_of([&] { write_checkpoint(job, staying); }), "rank 0 has given it up"));
  });
  Job job = job_of(dir.path(), 2, 0, 4, 0.5);
  const std::string text = error_of([&] { write_checkpoint(job, staying); });
  other.join();
  EXPECT_TRUE(contains(text, "step-00000002 was given up: no shard of rank 2, 3 after 500 ms"));
  EXPECT_TRUE(contains(text, "which all hosts must see"));
  EXPECT_TRUE(contains(text, "checkpoint.timeout"));
  const auto found = Store(dir.path()).newest();
  EXPECT_EQ(found->snapshot.step, 1);
  EXPECT_TRUE(found->skipped.empty());
}

// Rank 0 may rename the folder as soon as it sees the last record.
TEST(Writing, ARankTouchesTheFolderNoMoreAfterItsRecord) {
  const test::TempDir dir;
  Job job = job_of(dir.path(), 1, 1, 2);
  const fs::path folder = job.temporary, record = folder / record_name(1, 2);
  int synced = 0;
  before_fsync = [&](int file) {
    if (!fs::equivalent(fmt::format("/proc/self/fd/{}", file), folder)) return;
    EXPECT_FALSE(fs::exists(record));
    ++synced;
  };
  const std::atomic<bool> leaving = true;  // nobody commits
  write_checkpoint(job, leaving);
  before_fsync = nullptr;
  EXPECT_EQ(synced, 1);
  EXPECT_TRUE(fs::exists(record));
}

TEST(Writing, TheReasonOfARankThatFailedIsPassedOn) {
  const test::TempDir dir;
  Job failing = job_of(dir.path(), 2, 1, 2);
  failing.plans[0].parts[0].host = []() -> at::Tensor {
    throw StorageError(
        {.what = "cannot write x: No space left", .why = "it needs 4 MiB", .fix = ""});
  };
  EXPECT_TRUE(contains(error_of([&] { write_checkpoint(failing, staying); }), "No space left"));
  Job job = job_of(dir.path(), 2, 0, 2);
  const std::string text = error_of([&] { write_checkpoint(job, staying); });
  EXPECT_TRUE(contains(text, "rank 1 could not write its share"));
  EXPECT_TRUE(contains(text, "cannot write x: No space left: it needs 4 MiB"));
  EXPECT_FALSE(fs::exists(job.temporary));
}

// A program of three ranks is killed at odd moments; what is there can be loaded each time.
TEST(Writing, KilledInTheMiddle) {
  const test::TempDir dir;
  write_all_ranks(dir.path(), 1, 3);
  int64_t newest = 1;
  // A busy machine may need longer for a first one.
  for (unsigned round = 0; round < 10 || (newest == 1 && round < 200); ++round) {
    ++attempt;
    const pid_t child = fork();
    if (child == 0)
      for (int64_t step = newest + 1;; ++step) write_all_ranks(dir.path(), step, 3);
    usleep(3'000 + 4'100 * round);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto found = Store(dir.path()).newest();
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->skipped.empty()) << found->skipped.front();
    EXPECT_GE(found->snapshot.step, newest);
    newest = found->snapshot.step;
    expect_equal(found->snapshot.state, state_of(Layout::whole, 0, 1, newest), "after a kill");
  }
  EXPECT_GT(newest, 1);
}

// One rank of three is killed while it writes: the others end with a sentence that names it.
TEST(Writing, OneRankKilledWhileItWrites) {
  const test::TempDir dir;
  write_all_ranks(dir.path(), 1, 3);
  const pid_t child = fork();
  if (child == 0) {
    Job job = job_of(dir.path(), 2, 1, 3);
    job.plans[0].parts.back().host = []() -> at::Tensor {
      ::raise(SIGKILL);
      return {};
    };
    write_checkpoint(job, staying);
  }
  std::thread third([&] {
    Job job = job_of(dir.path(), 2, 2, 3);
    EXPECT_TRUE(contains(error_of([&] { write_checkpoint(job, staying); }), "was not finished"));
  });
  Job job = job_of(dir.path(), 2, 0, 3, 0.5);
  EXPECT_TRUE(
      contains(error_of([&] { write_checkpoint(job, staying); }), "no shard of rank 1 after"));
  third.join();
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(Store(dir.path()).newest()->snapshot.step, 1);
  write_all_ranks(dir.path(), 3, 3);  // and what it left is removed
  for (const auto& item : fs::directory_iterator(dir.path()))
    EXPECT_EQ(item.path().string().find(".tmp-"), std::string::npos) << item.path();
}

TEST(Writing, SaveReturnsBeforeTheFileIsThere) {
  const test::TempDir dir;
  Snapshot snapshot{.step = 1, .state = {}};
  for (int i = 0; i < 16; ++i)
    snapshot.state.tensors[fmt::format("model/{}", i)] = at::ones({int64_t{2} << 20});  // 128 MiB
  Store store(dir / "ck");
  for (int64_t step = 1; step <= 2; ++step) {  // the second one has its memory already
    snapshot.step = step;
    const double start = now();
    const fs::path made = store.save(snapshot);
    const double blocked = now() - start;
    EXPECT_TRUE(store.busy());
    EXPECT_FALSE(fs::exists(made));
    store.check();
    store.wait();
    const double written = now() - start;
    EXPECT_TRUE(fs::exists(made / "manifest.json"));
    EXPECT_LT(blocked, written);
    fmt::print("128 MiB: the step was blocked for {:.0f} ms, on disk after {:.0f} ms\n",
               blocked * 1e3, written * 1e3);
  }
}

// The disk is too small for one rank's share: no rank hangs, all get a sentence, later saves work.
TEST(Writing, FullDiskOnAllRanks) {
  const test::TempDir dir;
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=2m") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  test::on_ranks(2, [&](comm::Group world) {
    Store store(dir / "ck", {.timeout = {5}}, world);
    Snapshot small{.step = 1, .state = state_of(Layout::flat, world.rank(), 2, 1)};
    store.save(small);
    store.wait();
    Snapshot large{.step = 2, .state = {}};
    large.state.tensors["model/w"] = at::ones({int64_t{2} << 20});
    store.save(large);
    // At the next save all ranks know, also one that was faster than the disk was full.
    const std::string text = error_of([&] { store.save(small); });
    EXPECT_TRUE(contains(text, "No space left on device") ||
                contains(text, "rank 0 has given it up") ||
                contains(text, "could not write its share"))
        << text;
    EXPECT_EQ(store.newest()->snapshot.step, 1);
    small.step = 3;
    store.save(small);
    store.wait();
    EXPECT_EQ(store.newest()->snapshot.step, 3);
  });
  umount(dir.path().c_str());
}

TEST(Writing, AnErrorOfTheThreadComesOutOnce) {
  const test::TempDir dir;
  std::ofstream(dir / "ck") << "a file";
  Store store(dir / "ck");
  const Snapshot snapshot{.step = 1, .state = state_of(Layout::whole, 0, 1, 1)};
  store.save(snapshot);
  while (store.busy()) usleep(100);
  EXPECT_TRUE(contains(error_of([&] { store.check(); }), "cannot create the folder"));
  store.wait();
  fs::remove(dir / "ck");
  store.save(snapshot);
  store.wait();
  EXPECT_EQ(store.list().size(), 1u);
}

}  // namespace
}  // namespace braid::checkpoint
