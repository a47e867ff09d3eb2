// SPDX-License-Identifier: BSD-3-Clause
// Who meets, who is refused, and what is said of those who did not come.
#include "launch/meet.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "launch/meeting.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;

// A host's own name is often an address of loopback that is not 127.0.0.1.
TEST(Meeting, RanksOfOneHostMeetByAnyOfItsAddresses) {
  const int port = free_port();
  const auto errors =
      as_threads({place(0, 2, port, "127.0.1.1"), place(1, 2, port, "127.0.1.1")},
                 [](const Environment& here) { open_world(here, quick).ranks.barrier().wait(); });
  EXPECT_EQ(errors[0] + errors[1], "");
}

// torchrun's agent keeps its store when it starts the ranks again; rank 0 may be the last to come.
TEST(Meeting, RanksMeetInTheStoreOfAnEarlierTry) {
  const comm::Store agents = comm::Store::torchrun({.server = true, .token = "job.0"});
  mark(agents, "job.0");
  std::vector<Environment> ranks = {place(0, 2, agents.port()), place(1, 2, agents.port())};
  for (Environment& rank : ranks) rank.token = "job.1", rank.store_served = true;
  const auto errors = as_threads(ranks, [](const Environment& here) {
    if (here.rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    open_world(here, quick).ranks.barrier().wait();
  });
  EXPECT_EQ(errors[0] + errors[1], "");
}

TEST(Meeting, SaysWhatIsMissing) {
  const std::string text = test::error_of([] { open_world(place(1, 4, 0, "")); });
  EXPECT_TRUE(contains(text, "rank 1 of 4 does not know where to meet the others"));
  EXPECT_TRUE(contains(text, "export MASTER_ADDR=<host of rank 0> MASTER_PORT=29500"));
}

TEST(Meeting, NamesAnUnknownHost) {
  const std::string text =
      test::error_of([] { open_world(place(1, 2, 29500, "no-such-host.invalid")); });
  EXPECT_TRUE(contains(text, "the host no-such-host.invalid is not known"));
}

// A pod's name comes with the pod, perhaps after the ranks of this one.
TEST(Meeting, WaitsForTheNameOfAPodThatMayCome) {
  Environment here = place(2, 4, 29500, "no-such-host.invalid");
  here.launcher = Launcher::own;
  here.local_world = 2;
  const auto start = std::chrono::steady_clock::now();
  const std::string text = test::error_of([&] { open_world(here, {.timeout = {0.6}}); });
  EXPECT_TRUE(contains(text, "no-such-host.invalid"));
  EXPECT_GT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(500));
}

TEST(Meeting, NamesAPlaceWhereNobodyListens) {
  const int port = free_port();
  const std::string text =
      test::error_of([&] { open_world(place(1, 2, port), {.timeout = {0.2}}); });
  EXPECT_TRUE(contains(text, "nothing listens at 127.0.0.1:" + std::to_string(port)));
}

TEST(Meeting, NamesThePortInUse) {
  const Descriptor taken = listen_at(0, false);
  const std::string text = test::error_of([&] { open_world(place(0, 2, port_of(taken)), quick); });
  EXPECT_TRUE(contains(text, "port " + std::to_string(port_of(taken)) + " is in use"));
  EXPECT_TRUE(contains(text, "export MASTER_PORT=<free port>"));
}

TEST(Meeting, NamesTheRanksThatDidNotCome) {
  const int port = free_port();
  const auto errors =
      as_threads({place(0, 5, port), place(2, 5, port), place(3, 5, port)},
                 [](const Environment& here) { open_world(here, {.timeout = {1}}); });
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "rank 1, 4 of 5 did not come within 2 s"));
}

// Two jobs were given one port: the second does not get into the first.
TEST(Meeting, AnotherJobAtTheSamePortIsRefused) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 2, port), place(1, 2, port), place(1, 2, port)};
  ranks[0].token = ranks[1].token = "job-a";
  ranks[2].token = "job-b";
  std::promise<void> refused;  // before the port is closed, since all have come
  const auto errors = as_threads(ranks, [&](const Environment& here) {
    if (here.rank == 1 && here.token == "job-a") refused.get_future().wait();
    try {
      open_world(here, quick).ranks.barrier().wait();
    } catch (const Error&) {
      refused.set_value();
      throw;
    }
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_TRUE(contains(errors[2], "127.0.0.1:" + std::to_string(port) + " belongs to another job"));
}

TEST(Meeting, ASecondProcessWithTheSameRankIsRefused) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 3, port), place(1, 3, port), place(1, 3, port)};
  const auto errors =
      as_threads(ranks, [](const Environment& here) { open_world(here, {.timeout = {0.4}}); });
  EXPECT_TRUE(contains(errors[1] + errors[2], "rank 1 is there already"));
  EXPECT_TRUE(contains(errors[0], "rank 2 of 3 did not come"));
}

// Somebody else's store has the port: no rank of ours waits for ever.
TEST(Meeting, AStrangersStoreIsRefused) {
  const comm::Store strangers = comm::Store::torchrun({.server = true});
  const std::string text =
      test::error_of([&] { open_world(place(1, 2, strangers.port()), {.timeout = {0.3}}); });
  EXPECT_TRUE(contains(text, "belongs to no braid job"));
}

// Whoever reaches torchrun's store may write into it: who does not know the token disturbs nobody
// by that, and sees no key of the job.
TEST(Meeting, AStrangerInTorchrunsStoreSeesNothing) {
  const comm::Store agents = comm::Store::torchrun({.server = true});
  std::vector<Environment> ranks = {place(0, 2, agents.port()), place(1, 2, agents.port())};
  for (Environment& rank : ranks) rank.token = "secret", rank.store_served = true;
  std::thread stranger([&] {
    const comm::Store store = comm::Store::torchrun({.port = agents.port(), .token = "guess"});
    store.set("here/1", "somebody");
    store.set("braid/secret/here/1", "somebody");
    EXPECT_FALSE(store.has("here/0"));
    EXPECT_FALSE(store.has("braid/secret/here/0"));
  });
  const auto errors = as_threads(ranks, [](const Environment& here) {
    const World world = open_world(here, quick);
    world.ranks.barrier().wait();
    EXPECT_TRUE(world.places[1].starts_with("h1:"));
  });
  stranger.join();
  EXPECT_EQ(errors[0] + errors[1], "");
}

}  // namespace
}  // namespace braid::launch
