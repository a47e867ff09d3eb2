// SPDX-License-Identifier: BSD-3-Clause
// Runs the current test again under a real mpirun, one process a rank.
//
//   if (!test::on_mpirun(4)) return;      // in the program that was started first: mpirun has run
//   comm::Group world(comm::mpi());       // in the ranks
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "support/command.h"

namespace braid::test {

inline std::string mpirun_path() {
  for (const char* path : {"/usr/bin/mpirun", "/usr/local/bin/mpirun"})
    if (access(path, X_OK) == 0) return path;
  return "";
}

inline bool is_mpi_rank() { return std::getenv("OMPI_COMM_WORLD_RANK") != nullptr; }

inline Outcome mpirun_this_test(int ranks) {
  const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
  return run_command(
      {mpirun_path(),
       "--allow-run-as-root",
       "--oversubscribe",
       "--mca",
       "mpi_yield_when_idle",
       "1",
       "--mca",
       "btl_vader_single_copy_mechanism",
       "none",
       "--mca",
       "btl_tcp_if_include",
       "lo",
       "--mca",
       "oob_tcp_if_include",
       "lo",
       "--mca",
       "orte_base_help_aggregate",
       "0",
       "-n",
       std::to_string(ranks),
       std::filesystem::read_symlink("/proc/self/exe").string(),
       "--gtest_color=no",
       std::string("--gtest_filter=") + info->test_suite_name() + "." + info->name()});
}

// True in a rank. False in the first program, where all ranks have passed the test or the failure
// was noted.
inline bool on_mpirun(int ranks) {
  if (is_mpi_rank()) return true;
  const Outcome done = mpirun_this_test(ranks);
  EXPECT_EQ(done.code, 0) << done.out << done.err;
  size_t passed = 0;
  for (size_t at = done.out.find("[  PASSED  ] 1 test"); at != std::string::npos;
       at = done.out.find("[  PASSED  ] 1 test", at + 1))
    ++passed;
  EXPECT_EQ(passed, static_cast<size_t>(ranks)) << done.out << done.err;
  return false;
}

}  // namespace braid::test
