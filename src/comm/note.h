// SPDX-License-Identifier: BSD-3-Clause
// What a rank does now, for the one who asks why it does not go on. Written by the rank, read by
// anybody. One for all groups of a rank.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace braid::comm {

struct GroupNote {
  std::string key;         // the same on all ranks of the group, another for each group
  std::vector<int> ranks;  // as numbered in the world
};

struct CallNote {
  std::shared_ptr<const GroupNote> group = {};
  std::string text = {};  // "all_reduce sum Float [3] of group world (call 4)"
  int64_t number = -1;    // among the collectives of the group; -1: no collective
  int peer = -1;          // other end of a message, as numbered in the world
};

class Note {
 public:
  using Clock = std::chrono::steady_clock;
  struct Blocked {  // a call that a thread of this rank stands in
    CallNote call = {};
    Clock::time_point since = {};
  };
  struct Failure {
    CallNote call = {};
    double seconds = 0;  // that it took
    std::string reason = {};
    bool told = false;  // the reason is a sentence of braid that names the cause
  };

  std::shared_ptr<const GroupNote> join(const std::string& name, std::vector<int> ranks);

  int64_t begin(const CallNote& call);  // gives a number for begun or fail
  void begun(int64_t entry);            // under way; nobody stands in it
  int64_t wait(const CallNote& call);   // gives a number for end or fail
  void end(int64_t entry);
  void fail(int64_t entry, std::string reason, bool told);

  std::string text() const;
  double waited() const;                          // seconds so far between wait and end
  std::vector<Blocked> blocked() const;           // in the order in which they began
  std::vector<Failure> failures() const;          // none, or the first one
  std::map<std::string, int64_t> counts() const;  // collectives begun so far, by key of the group

 private:
  int64_t enter(std::string_view state, const CallNote& call);
  mutable std::mutex mutex_;
  std::string state_ = "no collective yet", call_;
  Clock::time_point since_ = Clock::now();
  int64_t entries_ = 0;
  double waited_ = 0;
  std::map<int64_t, Blocked> blocked_;
  std::vector<Failure> failures_;
  std::map<std::string, int64_t> counts_;  // by key of the group
  std::map<std::string, int> names_;       // how often a group was joined before
};

}  // namespace braid::comm
