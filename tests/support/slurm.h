// SPDX-License-Identifier: BSD-3-Clause
// A real SLURM of virtual nodes for one test (tests/support/slurm starts it).
//
//   test::Slurm slurm(dir / "slurm", 2);
//   if (!slurm.missing().empty()) GTEST_SKIP() << slurm.missing();
//   slurm.run("srun -N2 hostname");
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "support/command.h"

namespace braid::test {

class Slurm {
 public:
  Slurm(std::filesystem::path dir, int nodes) : dir_(std::move(dir)) {
    std::filesystem::create_directories(dir_);
    const int code = script("start", std::to_string(nodes));
    if (code == 3) missing_ = "SLURM is not installed: " + output();
    if (code != 0 && code != 3) missing_ = "SLURM does not start here: " + output();
    setenv("SLURM_CONF", (dir_ / "slurm.conf").c_str(), 1);
  }
  ~Slurm() {
    if (missing_.empty()) script("stop", "");
    unsetenv("SLURM_CONF");
  }
  Slurm(const Slurm&) = delete;
  Slurm& operator=(const Slurm&) = delete;

  const std::string& missing() const { return missing_; }
  // The exit code of a line of shell; what it said is output().
  int run(const std::string& line) const {
    return run_command({"/bin/sh", "-c", "(" + line + ") > " + out() + " 2>&1"}).code;
  }
  std::string output() const { return text_of(out()); }
  int script(const std::string& action, const std::string& argument) const {
    return run(BRAID_SOURCE_DIR "/tests/support/slurm " + action + " " + dir_.string() + " " +
               argument);
  }

  // Submits lines of shell as the first job of this cluster.
  void submit(const std::string& options, const std::string& lines) const {
    std::ofstream(dir_ / "job.sh") << "#!/bin/sh\n" << lines << "\n";
    EXPECT_EQ(run("cd " + dir_.string() + " && sbatch --open-mode=append -o job.out " + options +
                  " job.sh"),
              0)
        << output();
  }
  std::string job_output() const { return text_of(dir_ / "job.out"); }
  std::string field(const std::string& name) const {  // of that job
    run("scontrol show job");
    const std::string text = output();
    const size_t at = text.find(name + "=");
    if (at == std::string::npos) return "";
    const size_t begin = at + name.size() + 1;
    return text.substr(begin, text.find_first_of(" \n", begin) - begin);
  }
  // The exit code of the job once it has ended for good.
  int wait_for_job() const {
    for (int i = 0; i < 1000; ++i) {
      const std::string state = field("JobState");
      if (state == "COMPLETED" || state == "FAILED") return std::stoi("0" + field("ExitCode"));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "the job does not end: " << field("JobState") << job_output();
    return -1;
  }

 private:
  std::string out() const { return (dir_ / "said").string(); }
  std::filesystem::path dir_;
  std::string missing_;
};

}  // namespace braid::test
