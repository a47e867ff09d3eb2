// SPDX-License-Identifier: BSD-3-Clause
// A thread that does one thing at a time, beside the caller.
//
//   worker.start([&] { update(); });
//   ...
//   worker.wait();     // throws what the work threw
#pragma once
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace braid::parallel {

class HostWorker {
 public:
  HostWorker() = default;
  ~HostWorker();  // ends the work begun
  HostWorker(const HostWorker&) = delete;
  HostWorker& operator=(const HostWorker&) = delete;

  void start(std::function<void()> work);
  void wait();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> work_;  // empty: none
  bool over_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // made at the first start: its threads of the math stay with it
};

}  // namespace braid::parallel
