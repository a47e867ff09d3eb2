// SPDX-License-Identifier: BSD-3-Clause
// Ranks as processes that a real launcher started: braid's own, mpirun, srun, and on hosts of their
// own. Each meets the others, adds up the rank numbers, and leaves a line about itself.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <deque>
#include <thread>

#include "braid/launch/spawn.h"
#include "braid/launch/world.h"
#include "launch/address.h"
#include "launch/launched.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;
using test::Launched;

TEST(Rank, DISABLED_Meets) {
  const Environment here = environment();
  Options options = {.timeout = {20}};
  options.meet_dir = std::getenv("BRAID_TEST_OUT");
  if (const char* seconds = std::getenv("BRAID_TEST_TIMEOUT"))
    options.timeout = {std::atof(seconds)};
  const std::string file = fmt::format("{}/{}", options.meet_dir, here.rank);
  try {
    const World world = open_world(here, options);
    const at::Tensor sum = at::full({1}, here.rank, at::kDouble);
    world.ranks.all_reduce(sum).wait();
    std::ofstream(file) << fmt::format("{} rank {}/{} local {}/{} node {} host {} at {} sum {}",
                                       to_text(here.launcher), here.rank, here.world,
                                       here.local_rank, here.local_world, here.node_rank, here.host,
                                       world.address, sum.item<double>());
    leave(world);
  } catch (const Error& error) {
    std::ofstream(file) << explain(error.complaint());
    throw;
  }
}

Descriptor knock_at(int port) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<uint16_t>(port));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool in = ::connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof(there)) == 0;
  return in ? std::move(socket) : Descriptor();
}

TEST(Rank, OfTheOwnLauncher) {
  const Launched job;
  const int code = spawn({.ranks = 2,
                          .command = test::again("Rank.DISABLED_Meets"),
                          .log_dir = job.dir() / "logs",
                          .launch = {.timeout = {20}}});
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(contains(job.said(0), "braid --ranks rank 0/2 local 0/2 node 0"));
  EXPECT_TRUE(contains(job.said(1), "braid --ranks rank 1/2 local 1/2 node 0"));
  for (const int rank : {0, 1}) EXPECT_TRUE(contains(job.said(rank), "at 127.0.0.1 sum 1"));
}

// Strangers hold the port of the store with silence and rubbish from before the ranks come until it
// is closed.
TEST(Rank, OfTheOwnLauncherAmongStrangers) {
  const Launched job;
  const int port = port_of(listen_at(0, true));
  std::atomic<bool> over = false;
  std::atomic<int> let_in = 0;
  std::thread strangers([&] {
    std::deque<Descriptor> silent;
    while (!over) {
      silent.push_back(knock_at(port));
      if (silent.back().get() < 0) {
        silent.pop_back();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        continue;
      }
      if (++let_in % 3 == 0) ::send(silent.back().get(), "rubbish", 7, MSG_NOSIGNAL);
      if (silent.size() > 200) silent.pop_front();
    }
  });
  const int code = spawn({.ranks = 2,
                          .command = test::again("Rank.DISABLED_Meets"),
                          .log_dir = job.dir() / "logs",
                          .launch = {.timeout = {20}, .port = port}});
  over = true;
  strangers.join();
  EXPECT_EQ(code, 0);
  EXPECT_GT(let_in, 200);
  for (const int rank : {0, 1}) EXPECT_TRUE(contains(job.said(rank), "at 127.0.0.1 sum 1"));
}

TEST(Rank, OfMpirun) {
  if (!test::installed("mpirun")) GTEST_SKIP() << "mpirun is not installed (openmpi-bin)";
  const Launched job;
  EXPECT_EQ(job.run("mpirun --allow-run-as-root --oversubscribe -n 4 " + test::rank_command()), 0)
      << job.output();
  for (int rank = 0; rank < 4; ++rank)
    EXPECT_TRUE(
        contains(job.said(rank), fmt::format("mpirun rank {0}/4 local {0}/4 node 0", rank)));
  EXPECT_TRUE(contains(job.said(3), "at 127.0.0.1 sum 6"));
}

// Killed, mpirun leaves plain processes behind; ours notice.
TEST(Rank, EndsWithMpirun) {
  if (!test::installed("mpirun")) GTEST_SKIP() << "mpirun is not installed (openmpi-bin)";
  const Launched job;
  test::Command mpirun({"/bin/sh", "-c",
                        "exec mpirun --allow-run-as-root --oversubscribe -n 2 " +
                            test::rank_command("Rank.DISABLED_Stays") + " > " +
                            (job.dir() / "out").string() + " 2>&1"});
  const auto ranks = [&] { return test::processes_with("Rank.DISABLED_Stays").size(); };
  EXPECT_TRUE(test::eventually([&] { return job.said(0) == "up" && job.said(1) == "up"; }));
  EXPECT_GE(ranks(), 2U);
  mpirun.send(SIGKILL);
  mpirun.wait();
  EXPECT_TRUE(test::eventually([&] { return ranks() == 0; }));
}

TEST(Rank, DISABLED_Stays) {
  const Environment here = environment();
  const World world = open_world(here, {.timeout = {20}});
  std::ofstream(fmt::format("{}/{}", std::getenv("BRAID_TEST_OUT"), here.rank)) << "up";
  std::this_thread::sleep_for(std::chrono::seconds(30));
}

class Network : public testing::Test {
 protected:
  void SetUp() override {
    if (getuid() != 0) GTEST_SKIP() << "hosts as network namespaces need root";
    if (!test::installed("ip")) GTEST_SKIP() << "ip is not installed (iproute2)";
    if (job_.run(script() + " up " + net() + " 3") != 0)
      GTEST_SKIP() << "the kernel refuses network namespaces: " << job_.output();
    up_ = true;
  }
  void TearDown() override {
    if (up_) job_.run(script() + " down " + net());
  }
  static std::string script() { return BRAID_SOURCE_DIR "/tests/support/hosts"; }
  std::string net() const { return (job_.dir() / "net").string(); }
  std::string on(const std::string& host) const { return script() + " on " + net() + " " + host; }

  Launched job_;
  bool up_ = false;
};

// On each host its own name is a loopback address: Gloo must not bind to that.
TEST_F(Network, MeetOverTheAddressThatLeadsToTheOthers) {
  const std::string variables = " env WORLD_SIZE=3 MASTER_ADDR=h1 MASTER_PORT=29500 RANK=";
  EXPECT_EQ(job_.run(on("h2") + variables + "1 " + test::rank_command() + " & " +  //
                     on("h3") + variables + "2 " + test::rank_command() + " & " +  //
                     on("h1") + variables + "0 " + test::rank_command() + " && wait"),
            0)
      << job_.output();
  EXPECT_TRUE(contains(job_.said(0), "host h1 at 10.88.0.1 sum 3"));
  EXPECT_TRUE(contains(job_.said(1), "host h2 at 10.88.0.2 sum 3"));
  EXPECT_TRUE(contains(job_.said(2), "host h3 at 10.88.0.3 sum 3"));
}

TEST_F(Network, AHostThatCannotBeReachedIsNamed) {
  job_.run(script() + " cut " + net() + " h1");
  EXPECT_NE(job_.run(on("h2") +
                     " env BRAID_TEST_TIMEOUT=1 WORLD_SIZE=2 RANK=1 MASTER_ADDR=h1 "
                     "MASTER_PORT=29500 " +
                     test::rank_command()),
            0);
  EXPECT_TRUE(contains(job_.said(1), "the host h1 cannot be reached at port 29500"));
}

TEST_F(Network, OfMpirunWithoutAMasterAddress) {
  if (!test::installed("mpirun")) GTEST_SKIP() << "mpirun is not installed (openmpi-bin)";
  const std::string agent = (job_.dir() / "agent").string();
  std::ofstream(agent) << "#!/bin/sh\nh=$1; shift; exec " + script() + " on " + net() +
                              " $h sh -c \"$*\"\n";
  std::filesystem::permissions(agent, std::filesystem::perms::owner_all);
  EXPECT_EQ(job_.run(on("h1") + " mpirun --allow-run-as-root --mca plm_rsh_agent " + agent +
                     " --mca oob_tcp_if_include eth0 --host h2:2,h3:1 -x BRAID_TEST_OUT " +
                     test::rank_command()),
            0)
      << job_.output();
  EXPECT_TRUE(contains(job_.said(0), "rank 0/3 local 0/2 node -1 host h2 at 10.88.0.2 sum 3"));
  EXPECT_TRUE(contains(job_.said(2), "rank 2/3 local 0/1 node -1 host h3 at 10.88.0.3 sum 3"));
}

// As under SkyPilot and Kubernetes: one process a host, which starts the ranks there.
TEST(Rank, DISABLED_StartsTheRanksOfItsHost) {
  const Environment here = environment();
  const std::string logs = std::getenv("BRAID_TEST_OUT");
  EXPECT_EQ(spawn({.ranks = here.to_start,
                   .command = test::again("Rank.DISABLED_Meets"),
                   .log_dir = logs + "/logs",
                   .here = here,
                   .launch = {.timeout = {20}}}),
            0);
}

TEST_F(Network, OneLauncherOnEachHost) {
  const std::string variables =
      " env SKYPILOT_NODE_IPS='10.88.0.1 10.88.0.2' SKYPILOT_NUM_GPUS_PER_NODE=2 "
      "SKYPILOT_TASK_ID=sky-7 SKYPILOT_NODE_RANK=";
  const std::string command = test::rank_command("Rank.DISABLED_StartsTheRanksOfItsHost");
  EXPECT_EQ(job_.run(on("h2") + variables + "1 " + command + " & " +  //
                     on("h1") + variables + "0 " + command + " && wait"),
            0)
      << job_.output();
  EXPECT_TRUE(contains(job_.said(0), "rank 0/4 local 0/2 node 0 host h1 at 10.88.0.1 sum 6"));
  EXPECT_TRUE(contains(job_.said(3), "rank 3/4 local 1/2 node 1 host h2 at 10.88.0.2 sum 6"));
}

}  // namespace
}  // namespace braid::launch
