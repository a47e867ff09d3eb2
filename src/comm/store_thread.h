// SPDX-License-Identifier: BSD-3-Clause
// Store calls on a thread of their own: with the link to the store cut, a call may stand for a
// quarter of an hour, and the one who asks must not.
//
//   StoreThread calls(store);
//   calls.post([](const Store& store) { store.set("a", "1"); });
//   if (calls.wait(2.0) != StoreThread::Answer::yes) ...   // failed, or none yet
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "braid/comm/store.h"

namespace braid::comm {

class StoreThread {
 public:
  enum class Answer : uint8_t { yes, failed, none };
  using Job = std::function<void(const Store&)>;

  explicit StoreThread(const Store& store);
  ~StoreThread();  // leaves a thread that stands in a call to itself
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  // One job at a time: only after the one before was answered.
  void post(Job job);
  Answer wait(double seconds);
  Answer ask(Job job, double seconds);  // post and wait; waits for the one before, too
  double pending_seconds() const;       // since the job under way was posted; 0: none

 private:
  struct State;
  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace braid::comm
