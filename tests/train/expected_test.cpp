// SPDX-License-Identifier: BSD-3-Clause
// plan.json in a run's folder: the run says when it leaves it.
#include "braid/train/expected.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "braid/train/measure.h"
#include "train/run.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

nlohmann::json plan_for(double seconds, int64_t bytes, const std::string& device = "cpu") {
  return {{"device", device},
          {"layout", "one rank"},
          {"gpus", 1},
          {"step_seconds", seconds},
          {"ranks", {{{"name", "all"}, {"bytes", bytes}, {"moment", "step"}}}}};
}

struct BesidePlan : testing::Test {
  void plant(const std::string& text) {
    fs::create_directories(dir / "run");
    std::ofstream(dir / "run" / "plan.json") << text;
  }
  RunOptions options() const {
    return run_of(vit_run, {"train.steps=14", "run.dir=" + (dir / "run").string()});
  }
  // Lines of out.log that speak of the plan.
  std::vector<std::string> said() {
    Session session = open_session(options(), {.quiet = true});
    session.trainer->fit();
    session = {};
    std::ifstream in(dir / "run" / "out.log");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);)
      if (line.find("plan") != std::string::npos) lines.push_back(line);
    return lines;
  }
  test::TempDir dir;
};

// What the dry run says is what a ledger beside the real run counts.
int64_t predicted_bytes(const RunOptions& options) {
  const Measured measured = measure(options);
  return std::max(measured.first_step.peak.bytes, measured.second_step.peak.bytes);
}

TEST_F(BesidePlan, ARunThatLeavesItsPlanSaysSoOnceWithBothNumbers) {
  plant(plan_for(1000, 1 << 30).dump());
  const std::vector<std::string> lines = said();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(contains(lines[0], "step time deviates from the plan: "));
  EXPECT_TRUE(contains(lines[0], " ms instead of 16m40s (-100 %"));
  EXPECT_TRUE(contains(lines[1], "peak memory deviates from the plan: "));
  EXPECT_TRUE(contains(lines[1], "KiB instead of 1.00 GiB (-100 %"));
}

TEST_F(BesidePlan, TheBytesOfADryRunAreKept) {
  plant(plan_for(0, predicted_bytes(options())).dump());
  for (const std::string& line : said()) ADD_FAILURE() << line;
}

TEST_F(BesidePlan, TooManyBytesAreTold) {
  plant(plan_for(0, predicted_bytes(options()) * 9 / 10).dump());
  const std::vector<std::string> lines = said();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "peak memory deviates from the plan"));
  EXPECT_TRUE(contains(lines[0], "(+11 %"));
}

TEST_F(BesidePlan, APlanOfAnotherMachineIsNotCompared) {
  plant(plan_for(1000, 1, "cuda").dump());
  const std::vector<std::string> lines = said();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(
      contains(lines[0], "plan.json is for 1 rank on cuda, this is a run of 1 rank on cpu"));
}

TEST_F(BesidePlan, ABrokenPlanDoesNotStopTheRun) {
  plant("{\"device\": ");
  const std::vector<std::string> lines = said();
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(contains(lines[0], "plan.json is no plan"));
  const std::string text = error_of([&] { read_expected(dir / "run"); });
  EXPECT_TRUE(contains(text, "write it again, or rm"));
  fs::remove(dir / "run" / "plan.json");
  EXPECT_FALSE(read_expected(dir / "run"));
}

// Times of steps: a pause is not the pace.
std::vector<std::string> after_steps(PlanWatch watch, const std::vector<double>& seconds,
                                     int64_t bytes) {
  for (const double step : seconds) watch.step(step);
  return watch.look(bytes);
}

const std::vector<double> steady = {9, 9, 9, 1, 1.04, 0.99, 1, 1.01, 7, 1, 1.03};

Expected three_stages() {
  return {.device = "cuda",
          .layout = "pipeline 4",
          .world = 4,
          .step_seconds = 1,
          .ranks = {{"first stage", 1000, "step"},
                    {"stages 2 to 3", 600, "step"},
                    {"last stage", 800, "evaluation"}}};
}

PlanWatch stage(int64_t number) {
  return {three_stages(),
          {.device = "cuda", .world = 4, .stage = number, .stages = 4, .first = number == 0}};
}

TEST(PlanWatch, EachStageIsHeldToItsOwnKind) {
  EXPECT_TRUE(after_steps(stage(0), steady, 1040).empty());
  EXPECT_EQ(after_steps(stage(0), steady, 1060).size(), 1u);
  EXPECT_EQ(after_steps(stage(0), steady, 940).size(), 1u);
  EXPECT_TRUE(after_steps(stage(3), steady, 810).empty());
  EXPECT_EQ(after_steps(stage(3), steady, 850).size(), 1u);
  // The evaluation, where its peak is, may still come.
  EXPECT_TRUE(after_steps(stage(3), steady, 500).empty());
  EXPECT_TRUE(after_steps(stage(1), steady, 620).empty());
  EXPECT_EQ(after_steps(stage(1), steady, 500).size(), 1u);
}

TEST(PlanWatch, TimeIsToldByTheFirstRankAfterSomeSteps) {
  std::vector<double> slow(11, 1.2);
  EXPECT_EQ(after_steps(stage(0), slow, 1000).size(), 1u);
  EXPECT_TRUE(after_steps(stage(1), slow, 600).empty());
  slow.pop_back();
  EXPECT_TRUE(after_steps(stage(0), slow, 5000).empty());
  EXPECT_FALSE(stage(0).due());
}

}  // namespace
}  // namespace braid::train
