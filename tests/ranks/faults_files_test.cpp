// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints of three ranks that lost a part, and disks that are full.
#include <sys/mount.h>

#include <cerrno>
#include <cstring>

#include "ranks/faulty_rank.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

void flip_a_bit(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-9, std::ios::end);
  const char byte = static_cast<char>(stream.get() ^ 4);
  stream.seekp(-9, std::ios::end);
  stream.put(byte);
}

// Each file is one rank's; all ranks go on to the checkpoint that is whole for all of them.
TEST(Faults, BrokenCheckpointsAreNamedAndPassedOver) {
  FaultyRun run({.zero = 3, .steps = 25});
  ASSERT_EQ(run.start().code, 0);
  const State whole = run.state(25);
  flip_a_bit(run.checkpoint(25) / "shard-00001-of-00003.safetensors");
  fs::remove(run.checkpoint(20) / "shard-00002-of-00003.safetensors");
  const fs::path half = run.checkpoint(15) / "shard-00000-of-00003.safetensors";
  fs::resize_file(half, fs::file_size(half) / 2);
  fs::remove(run.checkpoint(10) / "manifest.json");
  const Ended end = run.resume();
  EXPECT_EQ(end.code, 0) << end.terminal;
  EXPECT_EQ(run.resumed_at(), 5);
  for (const std::string part :
       {"step-00000025: shard-00001-of-00003.safetensors differs from what was saved",
        "step-00000020: shard-00002-of-00003.safetensors is missing",
        "step-00000015: shard-00000-of-00003.safetensors is truncated (",
        "step-00000010: it has no manifest.json"})
    EXPECT_TRUE(contains(end.terminal, "checkpoint skipped: " + part));
  expect_same_bits(run.state(25), whole);
}

TEST(Faults, FullDiskWhileSaving) {
  const TempDir disk;
  if (mount("tmpfs", disk.path().c_str(), "tmpfs", 0, "size=1m") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs: " << std::strerror(errno);
  {
    FaultyRun run({.dir = (disk / "run").string()});
    const Ended end = run.start({.kind = "fill_disk", .rank = 0, .at = "step 10/update"});
    expect_end(end, 7, {"No space left on device"});
    EXPECT_TRUE(fs::exists(run.checkpoint(5) / "manifest.json"));
    EXPECT_FALSE(fs::exists(run.checkpoint(10)));
    fs::remove(run.run_dir() / "filler");
    expect_goes_on(run, 5);
  }
  umount(disk.path().c_str());
}

// One rank may write no more: its quota, or a disk of its own.
TEST(Faults, FullDiskOfOneRank) {
  FaultyRun run;
  const Ended end = run.start({.kind = "small_files", .rank = 1, .at = "step 10/update"});
  expect_end(end, 7, {"rank 1 ", "File too large"});
  EXPECT_FALSE(fs::exists(run.checkpoint(10)));
  expect_goes_on(run, 5);
}

}  // namespace
}  // namespace braid::test
