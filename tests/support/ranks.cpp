// SPDX-License-Identifier: BSD-3-Clause
#include "support/ranks.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

#include "braid/core/cpu.h"
#include "braid/core/error.h"
#include "support/ranks_crew.h"

namespace braid::test {

Crew::Crew(int world, comm::Store store, RankOptions options)
    : world_(world), store_(std::move(store)), options_(options) {}

std::vector<testing::TestPartResult> Crew::run(const std::vector<int>& ranks,
                                               const RankBody& body) {
  settle_math();  // before the ranks compute, who are threads
  for (const int rank : ranks) members_.push_back(Member{.rank = rank});
  for (Member& member : members_)
    member.thread = std::thread([this, &member, &body] { work(member, body); });
  if (!wait_for_all()) exit_stuck();
  for (Member& member : members_) member.thread.join();
  return failures();
}

void Crew::work(Member& member, const RankBody& body) {
  GeneratorWatch::this_thread_is(member.rank);
  testing::TestPartResultArray results;
  {
    using Catch = testing::ScopedFakeTestPartResultReporter;
    const Catch mine(Catch::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    call(member, body);
  }
  bool failed = !member.error.empty();
  for (int i = 0; i < results.size(); ++i) {
    member.results.push_back(results.GetTestPartResult(i));
    failed = failed || member.results.back().fatally_failed();
  }
  if (!failed && static_cast<int>(members_.size()) < world_) {  // others are processes of their own
    call(member, [](Rank& rank) { rank.world.barrier().wait(); });  // nobody hangs up early
    failed = !member.error.empty();
  }
  finish(member, failed);
}

void Crew::call(Member& member, const RankBody& body) {
  try {
    if (member.world.size() < world_) {  // the harness speaks up long before Gloo does
      comm::Group world(comm::gloo(store_, member.rank, world_,
                                   {.timeout_seconds = options_.limit_seconds * 10}));
      const std::lock_guard lock(mutex_);
      member.world = std::move(world);
    }
    Rank rank{member.world, at::make_generator<at::CPUGeneratorImpl>(
                                options_.seed + static_cast<uint64_t>(member.rank))};
    body(rank);
  } catch (const CommError& error) {
    member.error = explain(error.complaint());
    member.lost_peer = true;
  } catch (const Error& error) {
    member.error = explain(error.complaint());
  } catch (const std::exception& error) {
    member.error = error.what();
  } catch (...) {
    member.error = "an exception that is no std::exception";
  }
}

void Crew::finish(Member& member, bool failed) {
  {
    const std::lock_guard lock(mutex_);
    member.finished = true;
    member.failed = failed;
    if (failed && first_failed_ < 0) first_failed_ = member.rank;
  }
  if (failed) member.world.abort();  // the others may wait for this rank
  changed_.notify_all();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return all_finished(); });
  comm::Group world = std::exchange(member.world, {});
  lock.unlock();
  world = {};  // Gloo takes 6 ms to close a connection: all ranks do so side by side
}

bool Crew::all_finished() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.finished; });
}

bool Crew::wait_for_all() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::duration<double>(options_.limit_seconds),
                           [&] { return all_finished(); });
}

// The rank that failed by itself: one that lost its peer may notice that before the peer is through
// with its own exception.
int Crew::culprit() const {
  for (const Member& member : members_)
    if (member.failed && !member.lost_peer) return member.rank;
  return first_failed_;
}

std::vector<testing::TestPartResult> Crew::failures() const {
  const int culprit = this->culprit();
  std::vector<testing::TestPartResult> found;
  for (const Member& member : members_) {
    const std::string name =
        "rank " + std::to_string(member.rank) + " of " + std::to_string(world_);
    for (const testing::TestPartResult& result : member.results)
      found.emplace_back(result.type(), result.file_name(), result.line_number(),
                         ("on " + name + ":\n" + result.message()).c_str());
    if (member.error.empty()) continue;
    if (member.lost_peer && culprit != member.rank) {
      std::fprintf(stderr, "%s was ended, since rank %d had failed\n", name.c_str(), first_failed_);
    } else {
      found.emplace_back(testing::TestPartResult::kNonFatalFailure, nullptr, -1,
                         (name + " threw: " + member.error).c_str());
    }
  }
  return found;
}

void Crew::exit_stuck() {
  std::ostringstream text;
  text << "ranks stand still after " << options_.limit_seconds << " s\n";
  const std::lock_guard lock(mutex_);
  for (Member& member : members_) {
    text << "rank " << member.rank << " of " << world_ << ": ";
    if (member.finished) {
      text << "has left the test" << (member.error.empty() ? "" : ": " + member.error) << "\n";
      for (const testing::TestPartResult& result : member.results)
        text << "  " << result.message() << "\n";
    } else {
      text << "stuck; " << member.world.doing() << "\n" << stack_of(member.thread.native_handle());
    }
  }
  std::fputs(text.str().c_str(), stderr);
  std::fflush(nullptr);
  std::_Exit(stuck_exit_code);
}

void run_threads(int count, const RankBody& body, const RankOptions& options) {
  if (std::getenv("BRAID_TEST_RANK") != nullptr) return;  // a process of on_processes: done before
  const GeneratorWatch watch;
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(rank);
  for (const auto& result : Crew(count, comm::Store::in_memory(), options).run(ranks, body))
    GTEST_MESSAGE_AT_(result.file_name(), result.line_number(), result.message(), result.type());
  if (const std::string complaint = watch.complaint(); !complaint.empty())
    ADD_FAILURE() << complaint;
}

}  // namespace braid::test
