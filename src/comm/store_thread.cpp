// SPDX-License-Identifier: BSD-3-Clause
#include "comm/store_thread.h"

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "braid/core/thread.h"
#include "comm/quiet_log.h"
#include "comm/quiet_signals.h"

namespace braid::comm {

struct StoreThread::State {
  using Clock = std::chrono::steady_clock;
  explicit State(Store given) : store(std::move(given)) {}

  // Runs on the thread; holds the state, so that the owner may go.
  void serve() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [&] { return ended || (busy && job); });
      if (ended) return;
      const Job mine = std::exchange(job, nullptr);
      lock.unlock();
      bool good = true;
      try {
        const QuietLog quiet;
        mine(store);
      } catch (const std::exception&) {
        good = false;  // the connection is lost, or the server is
      }
      lock.lock();
      busy = false;
      last = good ? Answer::yes : Answer::failed;
      changed.notify_all();
    }
  }

  Store store;
  std::mutex mutex;
  std::condition_variable changed;
  Job job = {};
  bool busy = false;
  bool ended = false;
  Answer last = Answer::yes;
  Clock::time_point since = {};
};

StoreThread::StoreThread(const Store& store) : state_(std::make_shared<State>(store)) {
  const QuietSignals quiet;
  thread_ = start_thread("ask the store", [state = state_] { state->serve(); });
}

StoreThread::~StoreThread() {
  std::unique_lock lock(state_->mutex);
  state_->ended = true;
  const bool busy = state_->busy;
  state_->changed.notify_all();
  lock.unlock();
  if (busy) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void StoreThread::post(Job job) {
  const std::lock_guard lock(state_->mutex);
  state_->job = std::move(job);
  state_->busy = true;
  state_->since = State::Clock::now();
  state_->changed.notify_all();
}

StoreThread::Answer StoreThread::wait(double seconds) {
  std::unique_lock lock(state_->mutex);
  const bool over = state_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                                             [&] { return !state_->busy; });
  return over ? state_->last : Answer::none;
}

StoreThread::Answer StoreThread::ask(Job job, double seconds) {
  const auto start = State::Clock::now();
  if (wait(seconds) == Answer::none) return Answer::none;
  post(std::move(job));
  const std::chrono::duration<double> used = State::Clock::now() - start;
  return wait(std::max(seconds - used.count(), 0.01));
}

double StoreThread::pending_seconds() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->busy) return 0;
  return std::chrono::duration<double>(State::Clock::now() - state_->since).count();
}

}  // namespace braid::comm
