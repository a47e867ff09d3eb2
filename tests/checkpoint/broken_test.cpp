// SPDX-License-Identifier: BSD-3-Clause
// What happens to checkpoints when disks and processes fail.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "braid/checkpoint/store.h"
#include "checkpoint/saved.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

Snapshot filled(int64_t step, int64_t elements = 64) {
  Snapshot s{.step = step, .state = {}, .metrics = {{"loss", 1.0}}, .config = {}};
  s.state.tensors["model/w"] = at::full({elements}, static_cast<double>(step));
  s.state.tensors["optimizer/w/exp_avg"] = at::full({elements}, static_cast<double>(step));
  return s;
}

void flip_bit(const fs::path& file, int64_t from_end) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-from_end, std::ios::end);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(-from_end, std::ios::end);
  stream.put(byte);
}

void shorten(const fs::path& file, int64_t by) {
  fs::resize_file(file, fs::file_size(file) - static_cast<uintmax_t>(by));
}

const char* const weights = "model.safetensors";
const char* const shard = "state-00000-of-00001.safetensors";

TEST(BrokenCheckpoint, FallsBackToTheNewestWholeOneAndSaysWhy) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 9});
  for (int64_t step = 1; step <= 6; ++step) saved(store, filled(step));
  const auto folder = [&](int step) { return dir / ("ck/step-0000000" + std::to_string(step)); };
  shorten(folder(6) / shard, 8);
  flip_bit(folder(5) / weights, 3);
  flip_bit(folder(4) / "manifest.json", 40);
  fs::remove(folder(3) / weights);
  const auto found = store.newest();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->snapshot.step, 2);
  EXPECT_EQ(found->dir, folder(2));
  ASSERT_EQ(found->skipped.size(), 4u);
  EXPECT_TRUE(contains(found->skipped[0],
                       "step-00000006: state-00000-of-00001.safetensors is truncated ("));
  EXPECT_TRUE(
      contains(found->skipped[1], "step-00000005: model.safetensors differs from what was saved"));
  EXPECT_TRUE(contains(found->skipped[2], "step-00000004: manifest.json"));
  EXPECT_TRUE(contains(found->skipped[3], "step-00000003: model.safetensors is missing"));
}

// Any flipped bit of any file is found.
TEST(BrokenCheckpoint, EveryByteCounts) {
  const test::TempDir dir;
  Store store(dir / "ck");
  Snapshot snapshot = filled(1, 2);
  snapshot.config = "seed: 1";
  const fs::path made = saved(store, snapshot);
  for (const auto& item : fs::directory_iterator(made)) {
    const auto size = static_cast<int64_t>(fs::file_size(item.path()));
    const bool json = item.path().filename() == "manifest.json";
    for (int64_t at = 1; at <= size; ++at) {
      flip_bit(item.path(), at);
      bool refused = false;
      try {
        load(made);
      } catch (const StorageError&) {
        refused = true;
      }
      flip_bit(item.path(), at);
      // Between the words of the JSON a blank may become another blank-like character; the content
      // is then the same.
      if (!json) EXPECT_TRUE(refused) << item.path() << " " << at;
      if (json && !refused) EXPECT_EQ(load(made).step, 1);
    }
  }
  EXPECT_EQ(load(made).step, 1);
}

TEST(BrokenCheckpoint, AllBrokenIsAnError) {
  const test::TempDir dir;
  Store store(dir / "ck");
  for (int64_t step = 1; step <= 2; ++step) shorten(saved(store, filled(step)) / weights, 1);
  const std::string text = error_of([&] { store.newest(); });
  EXPECT_TRUE(contains(text, "none of the 2 checkpoints in"));
  EXPECT_TRUE(contains(text, "step-00000001: model.safetensors is truncated"));
  EXPECT_TRUE(contains(text, "without --resume"));
}

TEST(BrokenCheckpoint, BrokenOnesDoNotPushWholeOnesOut) {
  const test::TempDir dir;
  Store store(dir / "ck", {.keep = 2, .best = 0});
  store.save(filled(1));
  shorten(saved(store, filled(2)) / shard, 1);
  saved(store, filled(3));
  EXPECT_TRUE(fs::exists(dir / "ck/step-00000001/manifest.json"));
}

TEST(BrokenCheckpoint, WhatAKilledProcessLeftIsRemovedAtTheNextSave) {
  const test::TempDir dir;
  Store store(dir / "ck");
  saved(store, filled(1));
  fs::create_directories(dir / "ck/step-00000002.tmp-4711");
  std::ofstream(dir / "ck/step-00000002.tmp-4711/model.safetensors") << "half";
  EXPECT_EQ(store.newest()->snapshot.step, 1);
  saved(store, filled(2));
  EXPECT_FALSE(fs::exists(dir / "ck/step-00000002.tmp-4711"));
  EXPECT_EQ(store.newest()->snapshot.step, 2);
}

// A process that saves as fast as it can is killed at odd moments; the newest checkpoint is whole
// each time.
TEST(BrokenCheckpoint, KilledInTheMiddle) {
  const test::TempDir dir;
  Store store(dir / "ck");
  saved(store, filled(1, 1 << 18));  // no thread at the fork
  for (int round = 0; round < 8; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int64_t step = 2;; ++step) saved(store, filled(step, 1 << 18));
    }
    usleep(10'000 + 7'000 * static_cast<unsigned>(round));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    const auto found = store.newest();
    ASSERT_TRUE(found);
    EXPECT_TRUE(found->skipped.empty()) << found->skipped.front();
    EXPECT_TRUE(found->snapshot.state.tensor("model/w").equal(
        at::full({1 << 18}, static_cast<double>(found->snapshot.step))));
  }
}

void expect_old_survives(Store& store, const fs::path& dir) {
  const std::string text = error_of([&] { saved(store, filled(2, 1 << 20)); });
  EXPECT_TRUE(contains(text, "cannot write " + (dir / "step-00000002").string()));
  EXPECT_TRUE(contains(text, "it needs 4.00 MiB"));
  EXPECT_TRUE(contains(text, "run.dir"));
  EXPECT_EQ(store.newest()->snapshot.step, 1);
  EXPECT_EQ(store.list().size(), 1u);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir), fs::directory_iterator()), 1);
}

TEST(BrokenCheckpoint, FullDiskLosesNothing) {
  const test::TempDir dir;
  if (mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  {
    Store store(dir / "ck");
    saved(store, filled(1));
    expect_old_survives(store, dir / "ck");
    EXPECT_TRUE(contains(error_of([&] { saved(store, filled(2, 1 << 20)); }), "No space left"));
  }
  umount(dir.path().c_str());
}

// The same without the right to mount: the system refuses files above a size.
TEST(BrokenCheckpoint, FileSizeLimitLosesNothing) {
  const test::TempDir dir;
  Store store(dir / "ck");
  saved(store, filled(1));
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_old_survives(store, dir / "ck");
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
}

TEST(BrokenCheckpoint, AFileWhereTheFolderShouldBe) {
  const test::TempDir dir;
  std::ofstream(dir / "ck") << "x";
  Store store(dir / "ck");
  const std::string text = error_of([&] { saved(store, filled(1)); });
  EXPECT_TRUE(contains(text, "cannot create the folder"));
  EXPECT_TRUE(contains(text, "a file stands where a folder is needed"));
}

// Runs as a plain user in a child process: root may write anywhere.
TEST(BrokenCheckpoint, FolderWithoutPermission) {
  const test::TempDir dir;
  fs::create_directory(dir / "ck");
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir / "ck", fs::perms::owner_read | fs::perms::owner_exec |
                                  fs::perms::others_read | fs::perms::others_exec);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(2);
    Store store(dir / "ck");
    const std::string text = error_of([&] { saved(store, filled(1)); });
    _exit(contains(text, "Permission denied") && contains(text, "get write permission") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace braid::checkpoint
