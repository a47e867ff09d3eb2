// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/watch.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <mutex>
#include <thread>

#include "braid/comm/mismatch.h"
#include "support/expect.h"
#include "support/ranks.h"

namespace braid {
namespace {

void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

// What the ranks of a world said and how they were ended, as threads.
struct Stage {
  comm::Store store = comm::Store::in_memory();
  std::mutex mutex = {};
  std::vector<std::string> lines = {};
  std::vector<int> ended = {};

  comm::WatchOptions options(const comm::Group& world, comm::Timeouts timeouts) {
    return {.timeouts = timeouts,
            .report =
                [this](const std::string& line) {
                  const std::lock_guard lock(mutex);
                  lines.push_back(line);
                },
            .exit =
                [this, world](int code) {
                  {
                    const std::lock_guard lock(mutex);
                    ended.push_back(code);
                  }
                  world.abort();  // what the end of a process does
                }};
  }

  using Body = std::function<void(const comm::Group&, comm::Watch&)>;
  // Errors of calls are kept: they are what the watch is about.
  void run(int count, comm::Timeouts timeouts, const Body& body) {
    test::on_ranks(count, [&](comm::Group world) {
      comm::Watch watch(world, store, options(world, timeouts));
      try {
        body(world, watch);
      } catch (const CommError& error) {
        watch.leave(error.complaint().what);
        EXPECT_FALSE(watch.verdict().empty()) << "rank " << world.rank();
      }
    });
  }

  std::string line() const {
    EXPECT_EQ(lines.size(), 1U);
    return lines.empty() ? "" : lines.front();
  }
};

TEST(Watch, SaysNothingWhenAllIsWell) {
  Stage stage;
  stage.run(3, {.collective = 0.5}, [](const comm::Group& world, comm::Watch& watch) {
    for (int step = 0; step < 25; ++step) {
      watch.progress("step " + std::to_string(step));
      world.all_reduce(at::zeros({3})).wait();
      sleep_for(0.02);
    }
    sleep_for(0.2 * world.rank());  // ranks end one after the other
  });
  EXPECT_TRUE(stage.lines.empty() && stage.ended.empty());
}

// A text that no rank could have written is named, and ends nothing.
TEST(Watch, AnAlarmThatIsNoneEndsNothing) {
  Stage stage;
  stage.store.set("watch/alarm", "hello\x1b[2J");
  stage.store.set("watch/answer/1", "[[[");
  stage.store.set("watch/done", "");
  stage.run(2, {.collective = 1}, [](const comm::Group& world, comm::Watch& watch) {
    for (int step = 0; step < 25; ++step) {
      watch.progress("step " + std::to_string(step));
      world.all_reduce(at::zeros({3})).wait();
      sleep_for(0.02);
    }
  });
  EXPECT_TRUE(stage.ended.empty());
  ASSERT_EQ(stage.lines.size(), 2U) << "each rank says it once";
  EXPECT_EQ(stage.lines[0],
            "the text at watch/alarm in the store at memory is no alarm of a rank and is passed "
            "over: hello?[2J");
}

// Nor does it keep a true alarm from being heard.
TEST(Watch, ATrueAlarmReplacesOneThatIsNone) {
  Stage stage;
  for (const char* key : {"alarm", "beat/0", "answer/0"})
    stage.store.set(std::string("watch/") + key, "{\"rank\": 77}");
  stage.run(2, {.collective = 0.4}, [](const comm::Group& world, comm::Watch& watch) {
    watch.progress("step 1");
    if (world.rank() == 1) sleep_for(0.9);
    world.all_reduce(at::zeros({3})).wait();
  });
  ASSERT_FALSE(stage.lines.empty());
  EXPECT_TRUE(test::contains(stage.lines.back(), "rank 1 did not arrive; it last did: step 1"));
}

TEST(Watch, LooksThroughAChainOfWaitingRanks) {
  Stage stage;
  stage.run(3, {.collective = 0.4}, [](const comm::Group& world, comm::Watch& watch) {
    const int r = world.rank();
    const comm::Group low = r < 2 ? world.split({0, 1}, "low") : comm::Group();
    const comm::Group high = r > 0 ? world.split({1, 2}, "high") : comm::Group();
    world.barrier().wait();
    watch.note("step 7, forward");
    if (r == 2) return sleep_for(2.3);  // to blame: 1 waits for it, and 0 for 1
    if (r == 1) high.all_reduce(at::zeros({2})).wait();
    low.all_reduce(at::zeros({5})).wait();
  });
  EXPECT_TRUE(test::contains(stage.line(),
                             "all_reduce sum Float [2] of group high (call 0): rank 2 did not "
                             "arrive; it last did: step 7, forward"));
}

TEST(Watch, LooksAtAWorldOfAnotherBackend) {
  Stage stage;
  stage.run(2, {.collective = 0.4}, [](const comm::Group& world, comm::Watch& watch) {
    const comm::Group other(world.backend(), "gpus");
    watch.add(other);
    world.barrier().wait();
    watch.note("step 2, forward");
    if (world.rank() == 0) return sleep_for(2);
    other.all_reduce(at::zeros({5})).wait();
  });
  EXPECT_TRUE(test::contains(stage.line(),
                             "all_reduce sum Float [5] of group gpus (call 0): rank "
                             "0 did not arrive; it last did: step 2, forward"));
}

TEST(Watch, NamesTheSilentEndOfAMessage) {
  Stage stage;
  stage.run(2, {.collective = 0.4}, [](const comm::Group& world, comm::Watch& watch) {
    watch.note("step 1, waiting for the stage before");
    if (world.rank() == 0) return sleep_for(2);
    world.recv(at::zeros({2}), 0, 3).wait();
  });
  EXPECT_TRUE(test::contains(stage.line(),
                             "recv Float [2] from rank 0, tag 3 of group world "
                             "(message 0): rank 0 did not arrive; it last did: step "
                             "1, waiting for the stage before"));
}

TEST(Watch, NamesTheRankThatMakesNoProgress) {
  Stage stage;
  const comm::Timeouts timeouts{.collective = 5, .step = 0.4, .start = 10};
  stage.run(2, timeouts, [](const comm::Group& world, comm::Watch& watch) {
    for (int step = 0; step < 15; ++step) {
      if (step == 0 || world.rank() == 0) watch.progress("step " + std::to_string(step));
      watch.note("step " + std::to_string(step) + ", reading");
      sleep_for(0.1);
    }
  });
  EXPECT_TRUE(test::contains(stage.line(), "s on rank 1; it last did: step "));
  EXPECT_TRUE(test::contains(stage.line(), "reading"));
}

TEST(Watch, GivesTheStartATimeOfItsOwn) {
  Stage stage;
  const comm::Timeouts timeouts{.collective = 5, .step = 0.1, .start = 0.5};
  stage.run(1, timeouts, [](const comm::Group&, comm::Watch& watch) {
    watch.note("reading the data set");
    sleep_for(2.2);
  });
  EXPECT_TRUE(test::contains(stage.line(),
                             "no progress for 1 s on rank 0; it last did: reading the data set"));
  EXPECT_EQ(stage.ended, std::vector{5}) << "the exit code of communication";
}

// Another rank spoke, into a log: who looks at the terminal sees rank 0's lines.
TEST(Watch, Rank0RepeatsWhatARankSaidInItsPlace) {
  Stage stage;
  const comm::Store store = stage.store.under("watch");
  ASSERT_TRUE(store.claim("word"));
  store.set("verdict", "rank 2 is gone");
  stage.run(2, {.collective = 5, .step = 0.1, .start = 0.3},
            [](const comm::Group&, comm::Watch&) { sleep_for(1.5); });
  EXPECT_EQ(stage.line(), "rank 2 is gone") << "once, by rank 0 alone";
}

TEST(Watch, IsSilentWhenAllRanksLeaveByThemselves) {
  Stage stage;
  const auto start = std::chrono::steady_clock::now();
  test::on_ranks(3, [&](comm::Group world) {
    comm::Watch watch(world, stage.store, stage.options(world, {.collective = 1}));
    world.barrier().wait();
    watch.leave("loss is nan");
    EXPECT_EQ(watch.verdict(), "");
  });
  EXPECT_TRUE(stage.lines.empty() && stage.ended.empty());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 1.8) << "nobody waits for those who have answered";
}

TEST(Watch, TellsOfAnExceptionThatPassesIt) {
  Stage stage;
  test::on_ranks(2, [&](comm::Group world) {
    try {
      comm::Watch watch(world, stage.store, stage.options(world, {.collective = 1}));
      if (world.rank() == 1) throw std::runtime_error("something else");
      world.barrier().wait();
    } catch (const std::runtime_error&) {
      if (world.rank() == 1) world.abort();
    }
  });
  EXPECT_TRUE(test::contains(stage.line(), "rank 1 left: an exception; rank 0 was in barrier"));
}

TEST(Watch, PrintsTheSentenceOfTheMismatchDetectorOnce) {
  Stage stage;
  test::on_ranks(3, [&](comm::Group world) {
    const comm::Group group(comm::checked(world.backend(), stage.store));
    comm::Watch watch(group, stage.store, stage.options(group, {.collective = 5}));
    const std::string text =
        test::error_of([&] { group.all_reduce(at::zeros({group.rank() == 1 ? 3 : 4})).wait(); });
    watch.leave(text);
    EXPECT_TRUE(test::contains(text, watch.verdict()));
  });
  EXPECT_EQ(stage.line(),
            "rank 1 of group world differs in call 0: all_reduce sum Float [3], others all_reduce "
            "sum Float [4]");
}

}  // namespace
}  // namespace braid
