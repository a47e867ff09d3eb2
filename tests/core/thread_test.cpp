// SPDX-License-Identifier: BSD-3-Clause
// A thread that the system refuses is a sentence, and leaves none behind that could not be joined.
#include "braid/core/thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <thread>

#include "braid/core/deadline.h"
#include "braid/core/error.h"
#include "support/address_space.h"
#include "support/expect.h"

namespace braid {
namespace {

using test::contains;
using test::error_of;

// Room for a few stacks more, while it lives.
class LittleRoom {
 public:
  LittleRoom() {
    getrlimit(RLIMIT_AS, &before_);
    rlimit little = before_;
    little.rlim_cur = static_cast<rlim_t>(test::address_space()) + (rlim_t{40} << 20);
    setrlimit(RLIMIT_AS, &little);
  }
  ~LittleRoom() { setrlimit(RLIMIT_AS, &before_); }
  LittleRoom(const LittleRoom&) = delete;
  LittleRoom& operator=(const LittleRoom&) = delete;

 private:
  rlimit before_ = {};
};

TEST(Thread, StartsAndGivesResults) {
  bool ran = false;
  start_thread("test", [&] { ran = true; }).join();
  EXPECT_TRUE(ran);
  EXPECT_EQ(start_async("test", [] { return 7; }).get(), 7);
  need_threads(3, "test");
}

TEST(Thread, ARefusalNamesTheLimits) {
  if (test::under_address_sanitizer()) GTEST_SKIP() << "no limit of address space holds";
  std::string said;
  {
    const LittleRoom little;
    said = error_of([] { need_threads(200, "read data (data.workers)"); });
  }
  EXPECT_TRUE(contains(said, "cannot start a thread to read data (data.workers): Resource"));
  EXPECT_TRUE(contains(said, "of address space (ulimit -v)"));
  EXPECT_TRUE(contains(said, "data.workers=0"));
  need_threads(200, "test");  // all of the first ones have ended
}

TEST(DeadlineOfAScope, TheEarliestHoldsAndOtherThreadsHaveNone) {
  check_deadline();
  const Deadline none(0);
  EXPECT_EQ(Deadline::now_valid(), Deadline::Instant::max());
  {
    const Deadline far(100);
    const auto end = Deadline::now_valid();
    const Deadline farther(1000);
    EXPECT_EQ(Deadline::now_valid(), end);
    const Deadline soon(1e-9);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_THROW(check_deadline(), OutOfTime);
    start_thread("test", [] { EXPECT_NO_THROW(check_deadline()); }).join();
  }
  EXPECT_NO_THROW(check_deadline());
}

}  // namespace
}  // namespace braid
