// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/host_worker.h"

#include <utility>

#include "braid/core/thread.h"

namespace braid::parallel {

HostWorker::~HostWorker() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostWorker::start(std::function<void()> work) {
  wait();
  // Before there is work: where no thread starts, none may be waited for.
  if (!thread_.joinable())
    thread_ = start_thread("work on the host (memory.offload)", [this] { run(); });
  {
    const std::lock_guard lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void HostWorker::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !work_; });
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void HostWorker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return work_ || over_; });
    if (!work_) return;
    lock.unlock();
    std::exception_ptr error;
    try {
      work_();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    work_ = nullptr;
    error_ = error;
    changed_.notify_all();
  }
}

}  // namespace braid::parallel
