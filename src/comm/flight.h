// SPDX-License-Identifier: BSD-3-Clause
// Hidden parts of Group and Pending: the shared state of a group and one call under way.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "braid/comm/group.h"
#include "comm/note.h"

namespace braid::comm {

struct GroupState {
  std::shared_ptr<Backend> backend;  // null: one rank alone
  std::string name;
  std::vector<int> ranks;
  int rank = 0;
  int size = 1;
  std::shared_ptr<Note> note;  // one a rank: groups split off share it
  std::atomic<int64_t> calls{0};

  // The first failure breaks the group: later calls would pair with the wrong ones of other ranks.
  void fail(const std::string& sentence);
  std::string failure() const;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

struct Pending::Flight {
  // `call` is checked; grad mode is off.
  static std::unique_ptr<Flight> start(std::shared_ptr<GroupState> group, Call call);
  void wait();
  void give_up_if_stuck() const;  // an exception passes: end the call, if it does not end by itself

  std::shared_ptr<GroupState> group;
  Call call;                   // owns the tensors
  at::Tensor target;           // not contiguous: gets the values of call.output in wait()
  std::string text;            // of the call, for reports
  int exceptions = 0;          // in flight when the call began
  std::unique_ptr<Work> work;  // last: ends before the tensors it uses
};

}  // namespace braid::comm
