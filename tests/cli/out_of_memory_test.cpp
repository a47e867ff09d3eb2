// SPDX-License-Identifier: BSD-3-Clause
// `braid train` under a byte limit: exit code 8, one report, and no rank is left.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "cli/braid.h"
#include "launch/processes.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

int reports_in(const fs::path& dir) {
  int count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    count += name.starts_with("out_of_memory.") && name.ends_with(".json") ? 1 : 0;
  }
  return count;
}

int times(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST_F(Cli, OutOfMemoryEndsWithAReport) {
  const Outcome done = train("gpt", {"--set", "memory.limit=60 KiB"});
  expect_complaint(done, Exit::memory, {"out of memory in ", "60.00 KiB (memory.limit)"});
  EXPECT_TRUE(contains(done.err, "did not fit"));
  EXPECT_TRUE(fs::exists(dir / "gpt/out_of_memory.json"));
  EXPECT_TRUE(fs::exists(dir / "gpt/out_of_memory/rank0_memory_snapshot.pickle"));
}

TEST_F(Cli, OutOfMemoryOfRanksIsReportedOnceAndEndsAll) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome done = train("gpt", {"--ranks", "2", "--set", "memory.limit=60 KiB"});
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_NE(done.code, 0) << done.err;
  EXPECT_LT(seconds, 60);
  EXPECT_EQ(reports_in(dir / "gpt"), 1) << done.err;
  EXPECT_EQ(times(done.err, "with these changes"), 1) << done.err;
  EXPECT_TRUE(eventually([&] { return processes_with(dir.path().string()).empty(); }));
}

TEST_F(Cli, MicroBatchAutoIsSaidAndRecorded) {
  const Outcome done =
      train("gpt", {"--set", "train.micro_batch=auto", "--set", "memory.limit=100 MiB"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "micro_batch auto: 4 of 4 samples, predicted peak"));
  std::ifstream file(dir / "gpt/config.yaml");
  const std::string config{std::istreambuf_iterator<char>(file), {}};
  EXPECT_TRUE(contains(config, "micro_batch: 4"));
}

}  // namespace
}  // namespace braid::test
