// SPDX-License-Identifier: BSD-3-Clause
// Each way in which a rank can go, with processes: the line that the terminal shows, the exit codes
// and the time.
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <regex>

#include "braid/comm/group.h"
#include "braid/comm/watch.h"
#include "comm/watch_ranks.h"
#include "support/expect.h"

namespace braid::test {
namespace {

constexpr double timeout = 1, limit = timeout + 5;
constexpr int own_code = 6;

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

[[noreturn]] void throw_nan() {
  throw NotFiniteError({.what = "loss is nan in step 20", .why = "planted", .fix = "none"});
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// As launched: rank 0 serves the store, the others wait until it says where.
comm::Store meet(const std::filesystem::path& dir, int rank) {
  if (rank == 0) {
    comm::Store store = comm::Store::tcp({.server = true});
    std::ofstream(dir / "port.new") << store.port();
    std::filesystem::rename(dir / "port.new", dir / "port");
    return store;
  }
  while (!std::filesystem::exists(dir / "port")) sleep_seconds(0.01);
  return comm::Store::tcp({.port = std::stoi(text_of(dir / "port"))});
}

// One step a 20 ms; what a scene plants happens in step 20, on the last rank.
void train(const std::string& scene, const comm::Group& world, comm::Watch& watch,
           const std::filesystem::path& dir) {
  const bool planted = world.rank() == world.size() - 1;
  for (int step = 0;; ++step) {
    watch.progress("step " + std::to_string(step));
    watch.note("step " + std::to_string(step) + ", forward");
    sleep_seconds(0.02);
    if (step == 0) {
      std::ofstream(WatchedRanks::ready(dir, world.rank())) << "1" << std::flush;
      while (!std::filesystem::exists(dir / "go")) sleep_seconds(0.005);
    }
    if (step == 20 && planted) {
      if (scene == "exception") throw_nan();
      if (scene == "done") return;
      if (scene == "exit") std::exit(0);
      if (scene == "never") sleep_seconds(100);
      if (scene == "other") world.broadcast(at::zeros({2}), 0).wait();
    }
    world.all_reduce(at::zeros({4})).wait();
  }
}

}  // namespace

int be_a_watched_rank(const std::string& scene) {
  const std::filesystem::path dir = variable("WATCH_DIR");
  const int rank = std::stoi(variable("WATCH_RANK")), size = std::stoi(variable("WATCH_SIZE"));
  const comm::Store store = meet(dir, rank);
  // Gloo's own timeout speaks at the same time, or never.
  const double gloo_seconds = scene == "stop" ? timeout : 100;
  const comm::Group world(comm::gloo(store, rank, size, {.timeout_seconds = gloo_seconds}));
  comm::Watch watch(world, store, {.timeouts = {.store = 0.5, .collective = timeout}});
  try {
    train(scene, world, watch, dir);
  } catch (const Error& error) {
    watch.leave(error.complaint().what);
    if (watch.verdict().empty()) std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}

namespace {

// Waits for all but `lost`, which does not end or has ended otherwise. Gives the line.
std::string line_of(WatchedRanks& ranks, int count, int lost) {
  std::string lines;
  for (int rank = 0; rank < count; ++rank) {
    if (rank == lost) continue;
    const Outcome done = ranks.wait(rank);
    EXPECT_EQ(done.code, static_cast<int>(Exit::comm)) << "rank " << rank << ": " << done.err;
    lines += done.err;
  }
  testing::Test::RecordProperty("seconds after rank " + std::to_string(lost),
                                std::to_string(ranks.seconds()));
  EXPECT_LT(ranks.seconds(), limit);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_TRUE(lines.starts_with("braid: ")) << lines;
  return lines;
}

testing::AssertionResult matches(const std::string& text, const std::string& pattern) {
  if (std::regex_search(text, std::regex(pattern))) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << pattern << "\" in:\n" << text;
}

const std::string call = "all_reduce sum Float \\[4\\] of group world \\(call [0-9]+\\)";

// On a busy machine the timeout of a second may come before the broken connection is heard of.
std::string lost(int rank) {
  return "(" + call + " was broken off: rank " + std::to_string(rank) +
         " is gone|no answer for [0-9]+ s: " + call + ": rank " + std::to_string(rank) +
         " did not arrive)";
}

// Worlds side by side: most of the time nobody computes.
void start_all(const std::vector<WatchedRanks*>& worlds) {
  for (WatchedRanks* ranks : worlds) ranks->await();
  for (WatchedRanks* ranks : worlds) ranks->go();
  sleep_seconds(0.4);  // a sign of life of each rank
}

TEST(WatchProcess, NamesARankThatWasKilled) {
  WatchedRanks one("run", 3), two("run", 3);
  start_all({&one, &two});
  one.send(1, SIGKILL);
  two.send(2, SIGKILL);
  const std::string rest =
      "; it last did: step [0-9]+, forward \\(no sign of life for [0-9]+ s\\)\n";
  EXPECT_TRUE(matches(line_of(one, 3, 1), lost(1) + rest));
  EXPECT_TRUE(matches(line_of(two, 3, 2), lost(2) + rest));
}

TEST(WatchProcess, NamesTheFirstRankAndItsStore) {
  WatchedRanks killed("run", 3), stopped("run", 3);
  start_all({&killed, &stopped});
  killed.send(0, SIGKILL);
  stopped.send(0, SIGSTOP);
  const std::string store = "; its store at 127.0.0.1:[0-9]+ does not answer\n";
  EXPECT_TRUE(matches(line_of(killed, 3, 0), lost(0) + store));
  EXPECT_TRUE(matches(line_of(stopped, 3, 0),
                      "no answer for [12] s: " + call + ": rank 0 did not arrive" + store));
}

TEST(WatchProcess, NamesARankThatWasStopped) {
  WatchedRanks watched("run", 3), gloo("stop", 3);
  start_all({&watched, &gloo});
  for (WatchedRanks* ranks : {&watched, &gloo}) ranks->send(2, SIGSTOP);
  for (WatchedRanks* ranks : {&watched, &gloo})
    EXPECT_TRUE(matches(line_of(*ranks, 3, 2),
                        "no answer for [12] s: " + call +
                            ": rank 2 did not arrive; it last did: step [0-9]+, forward "
                            "\\(no sign of life for [0-9]+ s\\)\n"));
}

TEST(WatchProcess, TellsWhyARankLeftOrThatItEndedTooEarly) {
  WatchedRanks thrown("exception", 3), done("done", 3), silent("exit", 3);
  start_all({&thrown, &done, &silent});
  EXPECT_TRUE(matches(line_of(thrown, 3, 2),
                      "rank 2 left: loss is nan in step 20; ranks 0, 1 were in " + call));
  EXPECT_EQ(thrown.wait(2).code, own_code);
  EXPECT_TRUE(
      matches(line_of(done, 3, 2),
              "rank 2 ended too early; it last did: step 20, forward; ranks 0, 1 were in " + call));
  EXPECT_EQ(done.wait(2).code, 0);
  EXPECT_TRUE(matches(line_of(silent, 3, 2), "rank 2 is gone; it last did: step [0-9]+, forward"));
  EXPECT_EQ(silent.wait(2).code, 0);
}

TEST(WatchProcess, NamesARankThatDoesNotComeOrMakesAnotherCall) {
  WatchedRanks never("never", 3), other("other", 3);
  start_all({&never, &other});
  EXPECT_TRUE(matches(line_of(never, 3, -1), "no answer for [12] s: " + call +
                                                 ": rank 2 did not arrive; it last did: step 20, "
                                                 "forward\n"));
  EXPECT_TRUE(matches(line_of(other, 3, -1),
                      "no answer for [12] s: " + call +
                          ": rank 2 made another call: broadcast Float \\[2\\] from rank 0 of "
                          "group world \\(call 20\\)\n"));
}

}  // namespace
}  // namespace braid::test
