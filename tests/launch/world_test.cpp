// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/world.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/full.h>

#include <atomic>

#include "braid/core/accelerator.h"
#include "launch/meet.h"
#include "launch/meeting.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;

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

TEST(World, ARankComputesWithItsShareOfTheThreads) {
  const int port = free_port();
  std::vector<Environment> ranks = {place(0, 2, port), place(1, 2, port)};
  for (Environment& here : ranks) here.cores = {0, 1};
  const auto errors = as_threads(ranks, [&](const Environment& here) {
    at::set_num_threads(3);
    const World world = open_world(here, quick);
    EXPECT_EQ(world.threads, 1);
    EXPECT_EQ(at::get_num_threads(), 1);
    leave(world);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  at::set_num_threads(2);
}

TEST(World, ABackendThatCannotCarryTheTensorsIsRefused) {
  Environment here;
  std::string text = test::error_of([&] { open_world(here, {.backend = "nccl"}); });
  EXPECT_TRUE(contains(text, "launch.backend = nccl on the CPU"));
  EXPECT_TRUE(contains(text, "NCCL carries tensors of GPUs alone"));
  text = test::error_of([&] { open_world(here, {.device = "tpu"}); });
  EXPECT_TRUE(contains(text, "open_world with device \"tpu\""));
  EXPECT_TRUE(contains(text, "set launch::Options::device to cpu or cuda"));
  if (accelerator() != nullptr) return;
  text = test::error_of([&] { open_world(here, {.device = "cuda"}); });
  EXPECT_TRUE(contains(text, "this rank was to use a GPU, but there is no usable GPU"));
  EXPECT_EQ(open_world(here).device(), c10::Device(c10::kCPU));
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

TEST(World, StartedWithoutSrunIsRefused) {
  Environment here;
  here.waiting_tasks = 4;
  const std::string text = test::error_of([&] { open_world(here); });
  EXPECT_TRUE(contains(text, "started without srun inside a job of 4 tasks"));
  EXPECT_TRUE(contains(text, "srun braid train"));
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
