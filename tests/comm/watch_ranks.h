// SPDX-License-Identifier: BSD-3-Clause
// Ranks under a watch as processes of their own, so that they can be killed, stopped and left.
//
//   test::WatchedRanks ranks("run", 3);   // the body is in watch_process_test.cpp
//   ranks.await();
//   ranks.go();
//   ranks.send(2, SIGKILL);
//   EXPECT_EQ(ranks.wait(0).code, 5);
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/command.h"
#include "support/files.h"

namespace braid::test {

// What a rank does; gives its exit code. In watch_process_test.cpp.
int be_a_watched_rank(const std::string& scene);

class WatchedRanks {
 public:
  // The program starts itself again with the current test alone, which comes to this same line.
  WatchedRanks(const std::string& scene, int count) {
    if (const char* mine = std::getenv("WATCH_SCENE"); mine != nullptr) {
      if (mine == scene) std::_Exit(be_a_watched_rank(scene));
      return;
    }
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    for (int rank = 0; rank < count; ++rank)
      ranks_.push_back(std::make_unique<Command>(std::vector<std::string>{
          "/usr/bin/env", "OMP_NUM_THREADS=1", "WATCH_RANK=" + std::to_string(rank),
          "WATCH_SIZE=" + std::to_string(count), "WATCH_SCENE=" + scene,
          "WATCH_DIR=" + dir_.path().string(), self,
          std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name()}));
  }

  // Until all ranks have come to where they wait for go(): a machine that is busy with starting
  // them must not look like a rank that hangs.
  void await() {
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (!ranks_[rank]->saw(ready(dir_.path(), static_cast<int>(rank)), "1"))
        ADD_FAILURE() << "rank " << rank << " did not start: " << ranks_[rank]->err();
  }
  void go() {
    std::ofstream(dir_ / "go") << "1";
    start_ = Clock::now();
  }

  void send(int rank, int signal) {
    ranks_[static_cast<size_t>(rank)]->send(signal);
    start_ = Clock::now();
  }
  Outcome wait(int rank) { return ranks_[static_cast<size_t>(rank)]->wait(); }
  double seconds() const {  // since go(), or since a signal was sent
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  static std::filesystem::path ready(const std::filesystem::path& dir, int rank) {
    return dir / ("ready" + std::to_string(rank));
  }

 private:
  using Clock = std::chrono::steady_clock;
  TempDir dir_;
  std::vector<std::unique_ptr<Command>> ranks_;
  Clock::time_point start_ = {};
};

}  // namespace braid::test
