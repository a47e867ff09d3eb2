// SPDX-License-Identifier: BSD-3-Clause
// Ranks that another launcher has started, so that rank 0 serves the store: its host is lost, or
// the link between two hosts.
#include "braid/comm/store.h"
#include "launch/launched.h"
#include "ranks/faulty_rank.h"

namespace braid::test {
namespace {

using Words = std::vector<std::string>;

class FaultyHosts : public testing::Test {
 protected:
  // Three ranks with the variables of torchrun; `before[rank]`: what starts its program.
  void start(const Fault& fault, const std::string& address, int port,
             const std::vector<Words>& before = {{}, {}, {}}) {
    for (int rank = 0; rank < 3; ++rank) {
      Words words = run_.variables(fault, /*resume=*/false);
      words.insert(words.end(),
                   {"RANK=" + std::to_string(rank), "WORLD_SIZE=3", "MASTER_ADDR=" + address,
                    "MASTER_PORT=" + std::to_string(port), "BRAID_JOB_TOKEN=" + run_.dir()});
      jobs_.push_back(std::make_unique<FaultyJob>(run_.dir(), "FaultyRank.DISABLED_Rank", words,
                                                  before[static_cast<size_t>(rank)]));
    }
  }
  // All but `lost` end with 5. What they said, as one text; exactly `lines` lines.
  std::string ends(int lost, int lines) {
    std::vector<Ended> ends(3);
    std::vector<std::function<void()>> waits;
    for (size_t rank = 0; rank < 3; ++rank)
      waits.emplace_back([&, rank] { ends[rank] = jobs_[rank]->wait(); });
    side_by_side(waits);
    std::string all;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == lost) continue;
      const Ended& end = ends[static_cast<size_t>(rank)];
      expect_end(end, 5, {});
      all += end.terminal;
    }
    int said = 0;
    for (size_t at = 0; (at = all.find("braid: ", at)) != std::string::npos; ++at) ++said;
    EXPECT_EQ(said, lines) << all;
    run_.ended({});
    return all;
  }

  void TearDown() override {
    if (!net_.empty()) run_command({script_, "down", net_});
  }

  FaultyRun run_;
  const std::string script_ = BRAID_SOURCE_DIR "/tests/support/hosts";
  std::string net_;
  std::vector<std::unique_ptr<FaultyJob>> jobs_;
};

TEST_F(FaultyHosts, TheOneOfTheStoreIsLost) {
  const int port = comm::Store::tcp({.server = true}).port();  // free again at once
  start({.kind = "kill", .rank = 0, .at = "step 12/forward"}, "127.0.0.1", port);
  EXPECT_TRUE(contains(ends(/*lost=*/0, /*lines=*/1),
                       " was broken off: rank 0 is gone; its store at 127.0.0.1:" +
                           std::to_string(port) + " does not answer\n"));
  expect_goes_on(run_, 10);
}

TEST_F(FaultyHosts, TheLinkBetweenThemIsCut) {
  if (getuid() != 0) GTEST_SKIP() << "hosts as network namespaces need root";
  if (!installed("ip")) GTEST_SKIP() << "ip is not installed (iproute2)";
  const std::string net = run_.dir() + "/net";
  if (run_command({script_, "up", net, "2"}).code != 0)
    GTEST_SKIP() << "the kernel refuses network namespaces";
  net_ = net;
  start({.kind = "await_go", .rank = 2, .at = "step 12/forward"}, "h1", 29500,
        {{script_, "on", net, "h1"}, {script_, "on", net, "h1"}, {script_, "on", net, "h2"}});
  ASSERT_TRUE(jobs_[2]->saw("there", "yes")) << jobs_[2]->terminal();
  EXPECT_EQ(run_command({script_, "cut", net, "h2"}).code, 0);
  run_.write("go");
  const std::string said = ends(/*lost=*/-1, /*lines=*/2);  // one on each side
  EXPECT_TRUE(contains(said, ": rank 2 did not arrive; it last did: step 12"));
  EXPECT_TRUE(contains(said, ": rank 0 did not arrive; its store at h1:29500 does not answer"));
  expect_goes_on(run_, 10);
}

}  // namespace
}  // namespace braid::test
