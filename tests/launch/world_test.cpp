// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/world.h"

#include <gtest/gtest.h>

#include <ATen/ops/full.h>

#include <atomic>
#include <thread>
#include <vector>

#include "launch/address.h"
#include "launch/meet.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;

int free_port() { return port_of(listen_at(0, true)); }

Environment place(int rank, int world, int port, const std::string& host = "127.0.0.1") {
  Environment here;
  here.launcher = Launcher::torchrun;
  here.rank = rank;
  here.world = here.local_world = world;
  here.master_address = host;
  here.master_port = port;
  here.host = "h" + std::to_string(rank);
  here.cores = {0, 1, 2, 3, 4, 5, 6};
  return here;
}

const Options quick = {.timeout = {20}};

// What each rank of a job threw, "" if nothing.
template <class Body>
std::vector<std::string> as_threads(const std::vector<Environment>& ranks, Body body) {
  std::vector<std::string> errors(ranks.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ranks.size(); ++i)
    threads.emplace_back([&, i] {
      try {
        body(ranks[i]);
      } catch (const Error& error) {
        errors[i] = explain(error.complaint());
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(World, OneRankAloneNeedsNoNetwork) {
  Environment here;
  here.cores = {0, 1, 2};
  const World world = open_world(here);
  EXPECT_EQ(world.ranks.size(), 1);
  EXPECT_EQ(world.ranks.backend(), nullptr);
  EXPECT_EQ(world.threads, 3);
  leave(world);
}

TEST(World, RanksMeetAndShareTheirHost) {
  const int count = 3, port = free_port();
  std::vector<Environment> ranks;
  for (int rank = 0; rank < count; ++rank) ranks.push_back(place(rank, count, port));
  const auto errors = as_threads(ranks, [&](const Environment& here) {
    const World world = open_world(here, quick);
    const at::Tensor x = at::full({2}, here.rank + 1, at::kDouble);
    world.ranks.all_reduce(x).wait();
    EXPECT_EQ(x[0].item<double>(), 6);
    EXPECT_EQ(world.ranks.rank(), here.rank);
    EXPECT_TRUE(world.ranks == world.control);
    EXPECT_GT(world.latency_seconds, 0);
    EXPECT_LT(world.latency_seconds, 5);
    EXPECT_EQ(world.address, "127.0.0.1");
    EXPECT_EQ(world.threads, 2);  // 7 cores for 3
    ASSERT_EQ(world.places.size(), 3U);
    EXPECT_TRUE(world.places[2].starts_with("h2:"));
    leave(world);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The rank that serves the store is the last to go, unless it goes because of an error.
TEST(World, ServesTheStoreUntilAllHaveLeft) {
  const int port = free_port();
  std::atomic<bool> others_left = false;
  const auto errors =
      as_threads({place(0, 2, port), place(1, 2, port)}, [&](const Environment& here) {
        const World world = open_world(here, quick);
        EXPECT_EQ(world.serves_store, here.rank == 0);
        if (here.rank == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(200));
          others_left = true;
        }
        leave(world);
        EXPECT_TRUE(others_left);
      });
  EXPECT_EQ(errors[0] + errors[1], "");
}

struct LeavesAtTheEnd {
  World world;
  ~LeavesAtTheEnd() { leave(world); }
};

TEST(World, WaitsForNobodyWhileAnErrorPasses) {
  const int port = free_port();
  double seconds = 99;
  const auto errors =
      as_threads({place(0, 2, port), place(1, 2, port)}, [&](const Environment& here) {
        World world = open_world(here, quick);
        if (here.rank == 1) return;  // without a word
        const auto start = std::chrono::steady_clock::now();
        try {
          const LeavesAtTheEnd guard{std::move(world)};
          throw CommError({.what = "lost", .why = "", .fix = ""});
        } catch (const CommError&) {
        }
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      });
  EXPECT_LT(seconds, 5);
}

TEST(World, AnInterfaceHasAnAddress) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  const std::string text = test::error_of([] { address_of_interface("ib7"); });
  EXPECT_TRUE(contains(text, "launch.interface = ib7 has no address here"));
  EXPECT_TRUE(contains(text, "this host has"));
  EXPECT_TRUE(contains(text, "lo"));
}

TEST(World, CoresThatNoOtherRankUsesAreItsOwn) {
  std::vector<Seat> seats(3);
  for (Seat& seat : seats) seat.machine = "m";
  seats[0].cores = {0, 1, 2, 3};
  seats[1].cores = {4, 5};
  seats[2].cores = {4, 5};
  EXPECT_EQ(share_of_cores(seats, 0), 4);
  EXPECT_EQ(share_of_cores(seats, 1), 1);
  seats[2].machine = "other";
  EXPECT_EQ(share_of_cores(seats, 1), 2);
  seats[1].cores = {};
  EXPECT_EQ(share_of_cores(seats, 1), 1);
}

TEST(World, SaysWhatIsMissing) {
  const std::string text = test::error_of([] { open_world(place(1, 4, 0, "")); });
  EXPECT_TRUE(contains(text, "rank 1 of 4 does not know where to meet the others"));
  EXPECT_TRUE(contains(text, "export MASTER_ADDR=<host of rank 0> MASTER_PORT=29500"));
}

TEST(World, NamesAnUnknownHost) {
  const std::string text =
      test::error_of([] { open_world(place(1, 2, 29500, "no-such-host.invalid")); });
  EXPECT_TRUE(contains(text, "the host no-such-host.invalid is not known"));
}

TEST(World, NamesAPlaceWhereNobodyListens) {
  const int port = free_port();
  const std::string text =
      test::error_of([&] { open_world(place(1, 2, port), {.timeout = {0.2}}); });
  EXPECT_TRUE(contains(text, "nobody listens at 127.0.0.1:" + std::to_string(port)));
}

TEST(World, NamesThePortInUse) {
  const Descriptor taken = listen_at(0, false);
  const std::string text = test::error_of([&] { open_world(place(0, 2, port_of(taken)), quick); });
  EXPECT_TRUE(contains(text, "port " + std::to_string(port_of(taken)) + " is in use"));
  EXPECT_TRUE(contains(text, "export MASTER_PORT=<free port>"));
}

TEST(World, NamesTheRanksThatDidNotCome) {
  const int port = free_port();
  const auto errors =
      as_threads({place(0, 5, port), place(2, 5, port), place(3, 5, port)},
                 [](const Environment& here) { open_world(here, {.timeout = {0.4}}); });
  for (const std::string& error : errors)
    EXPECT_TRUE(contains(error, "rank 1, 4 of 5 did not come within 1 s"));
}

TEST(World, StartedWithoutSrunIsRefused) {
  Environment here;
  here.waiting_tasks = 4;
  const std::string text = test::error_of([&] { open_world(here); });
  EXPECT_TRUE(contains(text, "started without srun inside a job of 4 tasks"));
  EXPECT_TRUE(contains(text, "srun braid train"));
}

// Two jobs were given one port: the second does not get into the first.
TEST(World, AnotherJobAtTheSamePortIsRefused) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 2, port), place(1, 2, port), place(1, 2, port)};
  ranks[0].token = ranks[1].token = "job-a";
  ranks[2].token = "job-b";
  const auto errors = as_threads(ranks, [](const Environment& here) {
    const World world = open_world(here, quick);
    world.ranks.barrier().wait();
  });
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
  EXPECT_TRUE(contains(errors[2], "127.0.0.1:" + std::to_string(port) + " is of another job"));
}

TEST(World, ASecondProcessWithTheSameRankIsRefused) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 3, port), place(1, 3, port), place(1, 3, port)};
  const auto errors =
      as_threads(ranks, [](const Environment& here) { open_world(here, {.timeout = {0.4}}); });
  EXPECT_TRUE(contains(errors[1] + errors[2], "rank 1 is there already"));
  EXPECT_TRUE(contains(errors[0], "rank 2 of 3 did not come"));
}

// Somebody else's store has the port: no rank of ours waits for ever.
TEST(World, AStrangersStoreIsRefused) {
  const comm::Store strangers = comm::Store::tcp({.server = true});
  const std::string text =
      test::error_of([&] { open_world(place(1, 2, strangers.port()), {.timeout = {0.3}}); });
  EXPECT_TRUE(contains(text, "is of no braid job"));
}

// A stranger who connects and talks does not disturb those who meet, and sees no key of theirs.
TEST(World, AStrangerInTheStoreSeesNothing) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 2, port), place(1, 2, port)};
  for (Environment& rank : ranks) rank.token = "secret";
  std::thread stranger([&] {
    wait_for_listener({"127.0.0.1"}, port, seconds_from_now(10), false);
    const comm::Store store = comm::Store::tcp({.port = port, .timeout_seconds = 10});
    store.set("here/1", "somebody");
    store.set("braid/open/here/1", "somebody");
    EXPECT_FALSE(store.has("here/0"));
  });
  const auto errors = as_threads(ranks, [](const Environment& here) {
    const World world = open_world(here, quick);
    world.ranks.barrier().wait();
    EXPECT_TRUE(world.places[1].starts_with("h1:"));
  });
  stranger.join();
  EXPECT_EQ(errors[0] + errors[1], "");
}

TEST(World, TwoRanksOnOneGpuAreRefused) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 2, port), place(1, 2, port)};
  const auto errors = as_threads(ranks, [](const Environment& here) {
    const World world = open_world(here, quick);
    Environment one_host = here;
    one_host.host = "n1";
    refuse_shared_gpu(world, "", quick);
    refuse_shared_gpu(world, gpu_name(one_host, 3), {.share_gpu = true});
    world.control.barrier().wait();  // what was set above is not read below
    refuse_shared_gpu(world, gpu_name(one_host, 3), quick);
  });
  for (const std::string& error : errors) {
    EXPECT_TRUE(contains(error, "ranks 0 and 1 both use GPU 3 of n1"));
    EXPECT_TRUE(contains(error, "launch.share_gpu=true"));
  }
}

TEST(World, AGpuIsNamedByTheHostsNumber) {
  Environment here;
  here.host = "n1";
  EXPECT_EQ(gpu_name(here, 1), "GPU 1 of n1");
  here.visible_gpus = "2,5";
  EXPECT_EQ(gpu_name(here, 1), "GPU 5 of n1");
  here.visible_gpus = "GPU-aa,GPU-bb";
  EXPECT_EQ(gpu_name(here, 1), "GPU-bb");
  EXPECT_EQ(gpu_name(here, 1, "GPU-cc"), "GPU-cc");
}

}  // namespace
}  // namespace braid::launch
