// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/in_parts.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace braid {
namespace {

class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

TEST(InParts, EveryElementComesOnce) {
  const Threads two(2);
  for (const int64_t count : {0, 1, 7, 64, 1000, 100003})
    for (const int64_t grain : {1, 16, 4096}) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(count));
      in_parts(count, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      for (const auto& times : seen) ASSERT_EQ(times, 1) << count << " in parts of " << grain;
    }
}

TEST(InParts, RunOnSeveralThreads) {
  const Threads two(2);
  std::mutex mutex;
  std::set<std::thread::id> workers;
  in_parts(1 << 20, 1 << 10, [&](int64_t, int64_t) {
    const std::lock_guard lock(mutex);
    workers.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(workers.size(), 2u);
}

TEST(InParts, OneThreadRunsThemAlone) {
  const Threads one(1);
  int calls = 0;
  in_parts(1 << 20, 1, [&](int64_t begin, int64_t end) {
    ++calls;
    EXPECT_EQ(end - begin, 1 << 20);
  });
  EXPECT_EQ(calls, 1);
}

TEST(InParts, AnErrorComesToTheCaller) {
  const Threads two(2);
  EXPECT_THROW(in_parts(100, 1, [](int64_t, int64_t) { throw std::runtime_error("no"); }),
               std::runtime_error);
}

}  // namespace
}  // namespace braid
