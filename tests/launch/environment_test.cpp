// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "support/expect.h"

namespace braid::launch {
namespace {

using test::contains;
using test::error_of;

// Exactly these of the variables that braid reads are set; what was there comes back afterwards.
class Variables {
 public:
  explicit Variables(const std::map<std::string, std::string>& values) {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS",
                             "SLURM_LOCALID", "SLURM_STEP_ID", "SLURM_JOB_ID"}) {
      before_[name] = variable(name);
      unsetenv(name);
    }
    for (const auto& [name, value] : values) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Variables() {
    for (const auto& [name, value] : before_) {
      unsetenv(name.c_str());
      if (value) setenv(name.c_str(), value->c_str(), 1);
    }
  }
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

 private:
  std::map<std::string, std::optional<std::string>> before_;
};

TEST(Environment, AloneIsRankZeroOfOne) {
  const Variables none({});
  const Environment here = environment();
  EXPECT_EQ(here.rank, 0);
  EXPECT_EQ(here.world, 1);
  EXPECT_GT(here.columns, 0);
  EXPECT_FALSE(here.host.empty());
  EXPECT_TRUE(here.job_id.empty());
}

TEST(Environment, TorchrunWinsOverSlurm) {
  const Variables set({{"RANK", "5"},
                       {"WORLD_SIZE", "8"},
                       {"LOCAL_RANK", "1"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_JOB_ID", "77"}});
  const Environment here = environment();
  EXPECT_EQ(here.rank, 5);
  EXPECT_EQ(here.world, 8);
  EXPECT_EQ(here.local_rank, 1);
  EXPECT_EQ(here.job_id, "77");
}

TEST(Environment, SlurmTaskUnderSrun) {
  const Variables set({{"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_JOB_ID", "12"}});
  const Environment here = environment();
  EXPECT_EQ(here.rank, 3);
  EXPECT_EQ(here.world, 4);
  EXPECT_EQ(here.local_rank, 1);
}

TEST(Environment, BatchShellWithoutSrunIsAlone) {
  const Variables set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "12"}});
  const Environment here = environment();
  EXPECT_EQ(here.world, 1);
  EXPECT_EQ(here.job_id, "12");
}

TEST(Environment, KnowsWhereRanksMeet) {
  const Variables set({{"RANK", "1"},
                       {"WORLD_SIZE", "2"},
                       {"MASTER_ADDR", "node7"},
                       {"MASTER_PORT", "29500"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const Environment here = environment();
  EXPECT_EQ(here.master_address, "node7");
  EXPECT_EQ(here.master_port, 29500);
  EXPECT_TRUE(here.agent_serves);
}

TEST(Environment, WrongValuesAreNamed) {
  {
    const Variables set({{"RANK", "x"}, {"WORLD_SIZE", "2"}});
    EXPECT_TRUE(contains(error_of([] { environment(); }), "RANK is \"x\""));
  }
  {
    const Variables set({{"RANK", "2"}, {"WORLD_SIZE", "2"}});
    EXPECT_TRUE(contains(error_of([] { environment(); }), "a number from 0 to 1"));
  }
  {
    const std::map<std::string, std::string> half = {{"RANK", "0"}};
    const Variables set(half);
    EXPECT_TRUE(contains(error_of([] { environment(); }), "RANK is set, WORLD_SIZE is not"));
  }
}

}  // namespace
}  // namespace braid::launch
