// SPDX-License-Identifier: BSD-3-Clause
// Hidden parts of Group and Pending: the shared state of a group and one call under way.
#pragma once
#include <atomic>
#include <functional>
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
  std::shared_ptr<Note> note;              // one a rank: groups split off share it
  std::shared_ptr<const GroupNote> known;  // as the notes name this group
  std::atomic<int64_t> calls{0};           // collectives: their numbers agree on all ranks
  std::atomic<int64_t> messages{0};

  // The first failure breaks the group: later calls would pair with the wrong ones of other ranks.
  void fail(const std::string& sentence);
  std::string failure() const;

 private:
  mutable std::mutex mutex_;
  std::string failure_;
};

// A call for each pair of tensors, checked; pairs without elements are left out.
std::vector<Call> coalesced_parts(const Call& kind, const GroupState& group,
                                  const std::vector<at::Tensor>& out,
                                  const std::vector<at::Tensor>& in);

struct Pending::Flight {
  using Unpack = std::function<void(const at::Tensor& output)>;
  // `call` is checked; grad mode is off. With `unpack` the tensors are buffers of this flight, and
  // it puts the result where it belongs.
  static std::unique_ptr<Flight> start(std::shared_ptr<GroupState> group, Call call,
                                       Unpack unpack = {});
  // One flight for those parts that have a dtype and a device in common.
  static Pending start_all(const std::shared_ptr<GroupState>& group, const Call& kind,
                           const std::vector<Call>& parts);
  void wait();
  void give_up_if_stuck() const;  // an exception passes: end the call, if it does not end by itself

  std::shared_ptr<GroupState> group;
  Call call;          // owns the tensors
  at::Tensor target;  // not contiguous: gets the values of call.output in wait()
  Unpack unpack;
  CallNote note;                 // of the call, for reports
  int exceptions = 0;            // in flight when the call began
  std::unique_ptr<Flight> next;  // of the same Pending
  std::unique_ptr<Work> work;    // last: ends before the tensors it uses
};

}  // namespace braid::comm
