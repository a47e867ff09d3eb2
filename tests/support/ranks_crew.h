// SPDX-License-Identifier: BSD-3-Clause
// Inside of ranks.h: the threads of a run and how they are watched.
#pragma once
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "braid/comm/store.h"
#include "support/ranks.h"

namespace braid::test {

// Names of the functions that a thread of this process is in, innermost first.
std::string stack_of(pthread_t thread);

// Finds draws from the default CPU generator between its construction and complaint().
class GeneratorWatch {
 public:
  GeneratorWatch();
  ~GeneratorWatch();
  GeneratorWatch(const GeneratorWatch&) = delete;
  GeneratorWatch& operator=(const GeneratorWatch&) = delete;
  std::string complaint() const;  // "" if nobody drew from it
  static void this_thread_is(int rank);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Some of the ranks of a world, each on a thread.
class Crew {
 public:
  Crew(int world, comm::Store store, RankOptions options);
  // Runs `body` as these ranks and gives what failed. Exits if ranks stand still.
  std::vector<testing::TestPartResult> run(const std::vector<int>& ranks, const RankBody& body);

 private:
  struct Member {
    int rank = 0;
    std::thread thread = {};
    comm::Group world = {};  // stays open until all have finished: others may still read from it
    bool finished = false;
    bool failed = false;     // threw, or an ASSERT failed
    bool lost_peer = false;  // ended by a CommError, perhaps because another rank failed before
    std::string error = {};
    std::vector<testing::TestPartResult> results = {};
  };
  void work(Member& member, const RankBody& body);
  void call(Member& member, const RankBody& body);
  void finish(Member& member, bool failed);
  bool all_finished() const;  // with the mutex held
  bool wait_for_all();
  int culprit() const;
  std::vector<testing::TestPartResult> failures() const;
  [[noreturn]] void exit_stuck();

  int world_;
  comm::Store store_;
  RankOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Member> members_;
  int first_failed_ = -1;
};

}  // namespace braid::test
