// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/thread.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>

#include <condition_variable>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "braid/core/error.h"
#include "braid/core/units.h"

namespace braid {
namespace {

rlim_t soft_limit(int resource) {
  struct rlimit limit = {};
  return ::getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0 ? limit.rlim_cur
                                                                            : RLIM_INFINITY;
}

// Those that can refuse a thread, as far as they are set.
std::vector<std::string> thread_limits() {
  std::vector<std::string> limits;
  if (const rlim_t most = soft_limit(RLIMIT_NPROC); most != RLIM_INFINITY)
    limits.push_back(fmt::format("{} processes and threads of this user (ulimit -u)", most));
  if (const rlim_t most = soft_limit(RLIMIT_AS); most != RLIM_INFINITY)
    limits.push_back(
        fmt::format("{} of address space (ulimit -v), of which each thread's stack "
                    "takes a part",
                    to_text(Bytes{static_cast<int64_t>(most)})));
  int64_t pids = 0;
  if (std::ifstream file("/sys/fs/cgroup/pids.max"); file >> pids)
    limits.push_back(fmt::format("{} processes and threads of this container (pids.max)", pids));
  return limits;
}

// Threads that wait until they may end.
class Waiters {
 public:
  Waiters() = default;
  ~Waiters() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Waiters(const Waiters&) = delete;
  Waiters& operator=(const Waiters&) = delete;

  void add(std::string_view purpose) {
    threads_.push_back(start_thread(purpose, [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_; });
    }));
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

void complain_no_thread(std::string_view purpose, const std::error_code& cause) {
  const std::vector<std::string> limits = thread_limits();
  throw ConfigError(
      {.what = fmt::format("cannot start a thread to {}: {}", purpose, cause.message()),
       .why = limits.empty() ? std::string("the system has no room for another thread")
                             : fmt::format("the limits are {}", fmt::join(limits, "; ")),
       .fix =
           "raise that limit, or use fewer threads: --set train.threads=1 --set data.workers=0"});
}

void need_threads(int64_t count, std::string_view purpose) {
  Waiters waiters;
  for (int64_t i = 0; i < count; ++i) waiters.add(purpose);
}

}  // namespace braid
