// SPDX-License-Identifier: BSD-3-Clause
// A real SLURM of two virtual nodes.
#include "support/slurm.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "launch/launched.h"
#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;

class Slurm : public testing::Test {
 protected:
  void SetUp() override {
    if (!slurm_.missing().empty()) GTEST_SKIP() << slurm_.missing();
  }
  int run(const std::string& line) { return slurm_.run(line); }
  int batch(const std::string& options, const std::string& lines) {
    slurm_.submit(options, lines);
    return slurm_.wait_for_job();
  }
  std::string said(int rank) const { return job_.said(rank); }
  // Local ranks and hosts as the ranks themselves say.
  std::string layout() const {
    std::string text;
    for (int rank = 0; rank < 4; ++rank) {
      const size_t local = said(rank).find("local "), host = said(rank).find(" host");
      text +=
          local == std::string::npos ? said(rank) : said(rank).substr(local, host - local) + "; ";
    }
    return text;
  }

  test::Launched job_;
  test::Slurm slurm_{job_.dir() / "slurm", 2};
};

TEST_F(Slurm, SrunWithUnevenNodes) {
  EXPECT_EQ(run("srun -N2 -n4 " + test::rank_command()), 0) << slurm_.output();
  EXPECT_EQ(layout(), "local 0/3 node 0; local 1/3 node 0; local 2/3 node 0; local 0/1 node 1; ");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(contains(said(rank), fmt::format("srun rank {}/4", rank)));
    EXPECT_TRUE(contains(said(rank), "sum 6"));
  }
}

TEST_F(Slurm, SrunWithInterleavedRanks) {
  EXPECT_EQ(run("srun -N2 -n4 -m cyclic " + test::rank_command()), 0) << slurm_.output();
  EXPECT_EQ(layout(), "local 0/3 node 0; local 0/1 node 1; local 1/3 node 0; local 2/3 node 0; ");
}

TEST_F(Slurm, SrunOnTheSecondNodeOfAJob) {
  EXPECT_EQ(run("salloc -N2 -n8 --ntasks-per-node=4 srun -N1 -n4 -w n2 " + test::rank_command()), 0)
      << slurm_.output();
  EXPECT_EQ(layout(), "local 0/4 node 0; local 1/4 node 0; local 2/4 node 0; local 3/4 node 0; ");
}

TEST_F(Slurm, SbatchWithSrun) {
  EXPECT_EQ(batch("-N2 -n3", "srun " + test::rank_command()), 0) << slurm_.job_output();
  for (int rank = 0; rank < 3; ++rank) EXPECT_TRUE(contains(said(rank), "sum 3"));
}

// The commonest mistake: the program in the batch script without srun. Refused at once.
TEST_F(Slurm, SbatchWithoutSrunIsRefused) {
  EXPECT_EQ(batch("-N2 -n4", test::rank_command()), 1) << slurm_.job_output();
  EXPECT_TRUE(contains(said(0), "started without srun inside a job of 4 tasks"));
}

TEST_F(Slurm, MpirunInsideSbatch) {
  if (!test::installed("mpirun")) GTEST_SKIP() << "mpirun is not installed (openmpi-bin)";
  EXPECT_EQ(batch("-N2 -n3", "mpirun --allow-run-as-root -n 3 " + test::rank_command()), 0)
      << slurm_.job_output();
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(contains(said(rank), fmt::format("mpirun rank {}/3", rank)));
}

}  // namespace
}  // namespace braid::launch
