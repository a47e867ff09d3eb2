// SPDX-License-Identifier: BSD-3-Clause
// A training that SLURM interrupts ends with the weights and losses of one that nobody interrupted.
#include "support/slurm.h"

#include <gtest/gtest.h>

#include <sstream>

#include "cli/braid.h"

namespace braid::test {
namespace {

struct SlurmRun : Cli {
  void SetUp() override {
    Cli::SetUp();
    slurm = std::make_unique<Slurm>(dir / "slurm", 2);
    if (!slurm->missing().empty()) GTEST_SKIP() << slurm->missing();
  }
  std::string train(const std::string& run) const {
    return std::string(BRAID_COMMAND) + " train " + config("mlp") + " --set run.dir=" + at(run) +
           " --set train.steps=600 --set checkpoint.every=100 --set report.to=[jsonl] --set "
           "launch.timeout=20s --resume";
  }
  // As in docs/launch.md: 75 means stopped after saving, 5 that a rank was lost.
  std::string job() const {
    return "srun --wait=30 " + train("job") +
           "\ncode=$?\nagain=$(( ${SLURM_RESTART_COUNT:-0} < 20 ))\n"
           "case $code,$again in 75,*|5,1) scontrol requeue $SLURM_JOB_ID ;; esac\nexit $code";
  }
  bool trained_to(int step) const {
    const std::string word = "\"step\":" + std::to_string(step) + ",";
    for (int i = 0; i < 4000; ++i) {
      if (text_of(dir / "job/log.jsonl").find(word) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  std::map<int64_t, double> losses(const std::string& run) const {
    std::map<int64_t, double> found;
    std::istringstream lines(text_of(dir / run / "log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      const auto record = nlohmann::json::parse(line);
      if (record["type"] == "step") found[record["step"]] = record["loss"];
    }
    return found;
  }
  void expect_unbroken() const {
    EXPECT_EQ(slurm->wait_for_job(), 0) << slurm->job_output();
    EXPECT_NE(slurm->field("Restarts"), "0");
    const Outcome whole = run_command({"/bin/sh", "-c", train("whole") + " --ranks 2"});
    EXPECT_EQ(whole.code, 0) << whole.err;
    const auto job = losses("job"), reference = losses("whole");
    ASSERT_EQ(job.size(), reference.size());
    for (const auto& [step, loss] : reference) ASSERT_EQ(job.at(step), loss) << "step " << step;
  }
  std::unique_ptr<Slurm> slurm;
};

// USR1 is what --signal=USR1@60 sends before the time is up.
TEST_F(SlurmRun, SignalSavesAndARequeuedJobGivesTheUnbrokenResult) {
  slurm->submit("-N2 -n2", job());
  ASSERT_TRUE(trained_to(120)) << slurm->job_output();
  EXPECT_EQ(slurm->run("scancel --signal=USR1 " + slurm->field("JobId")), 0) << slurm->output();
  expect_unbroken();
}

TEST_F(SlurmRun, ACrashedNodeLosesNoMoreThanTheStepsSinceTheLastCheckpoint) {
  slurm->submit("-N2 -n2", job());
  ASSERT_TRUE(trained_to(150)) << slurm->job_output();
  EXPECT_EQ(slurm->script("crash", "n2"), 0);
  // SLURM finds a dead node after half a minute; an operator may say so at once.
  EXPECT_EQ(slurm->run("scontrol update NodeName=n2 State=DOWN Reason=crashed"), 0);
  EXPECT_EQ(slurm->script("revive", "n2"), 0) << slurm->output();
  expect_unbroken();
}

}  // namespace
}  // namespace braid::test
