// SPDX-License-Identifier: BSD-3-Clause
// Profiles of real steps, read back.
#include "braid/train/profiler.h"

#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "braid/core/observe.h"
#include "braid/core/region.h"
#include "train/profiler_request.h"
#include "train/run.h"

namespace braid::train {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& file) { return json::parse(std::ifstream(file)); }

struct Named {
  double begin, end;
};
std::map<std::string, std::vector<Named>> annotations(const json& trace) {
  std::map<std::string, std::vector<Named>> all;
  for (const json& event : trace["traceEvents"])
    if (event.value("cat", "") == "user_annotation" && event["ph"] == "X") {
      const double begin = event["ts"];
      all[event["name"]].push_back({begin, begin + event["dur"].get<double>()});
    }
  return all;
}

TestRun profiled_run(const test::TempDir& dir, const std::vector<std::string>& sets = {}) {
  RunOptions options = run_of(vit_run, sets);
  options.run.dir = dir.path().string();
  options.profile.on = true;
  options.train.steps = 12;
  options.checkpoint.at_end = false;
  return TestRun(options);
}

TEST(Profiler, StepsFourToEightWithTheirRegions) {
  const test::TempDir dir;
  profiled_run(dir).trainer.fit();
  const json trace = read_json(dir / "profile/rank0_trace.json");
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_TRUE(trace.contains("baseTimeNanoseconds"));
  auto found = annotations(trace);
  for (int n = 0; n < 12; ++n)
    EXPECT_EQ(found.count("ProfilerStep#" + std::to_string(n)), n >= 4 && n <= 8 ? 1u : 0u) << n;
  for (const std::string_view region : {regions::forward, regions::backward, regions::optimizer}) {
    const auto& spans = found[std::string(region)];
    ASSERT_EQ(spans.size(), 5u) << region;
    for (int n = 4; n <= 8; ++n) {
      const Named& step = found["ProfilerStep#" + std::to_string(n)].front();
      const Named& span = spans[static_cast<size_t>(n - 4)];
      EXPECT_TRUE(step.begin <= span.begin && span.end <= step.end) << region << n;
    }
  }
  EXPECT_GE(found[std::string(regions::data)].size(), 5u);  // one more at the end of an epoch
  EXPECT_EQ(found["blocks.0"].size(), 5u);
}

TEST(Profiler, TraceHasTheEventsOfPyTorch) {
  const test::TempDir dir;
  profiled_run(dir).trainer.fit();
  std::map<std::string, std::set<std::string>> phases;  // by category
  std::map<std::string, int> nested;
  const json trace = read_json(dir / "profile/rank0_trace.json");
  for (const json& event : trace["traceEvents"]) {
    phases[event.value("cat", "")].insert(event["ph"].get<std::string>());
    if (event["ph"] == "X") {
      EXPECT_TRUE(event.contains("ts") && event.contains("dur") && event.contains("tid"));
      EXPECT_GE(event["dur"].get<double>(), 0);
    }
    if (event.value("cat", "") == "cpu_op") EXPECT_TRUE(event["args"].contains("External id"));
  }
  EXPECT_TRUE(phases["cpu_op"].contains("X"));
  EXPECT_TRUE(phases["user_annotation"].contains("X"));
  EXPECT_TRUE(phases["cpu_instant_event"].contains("i"));  // [memory]
  EXPECT_TRUE(phases["fwdbwd"].contains("s") && phases["fwdbwd"].contains("f"));
}

TEST(Profiler, SummaryOfEachStep) {
  const test::TempDir dir;
  TestRun run = profiled_run(dir);
  run.trainer.fit();
  const json summary = read_json(dir / "profile/summary.json");
  ASSERT_EQ(summary["steps"].size(), 5u);
  EXPECT_EQ(summary["steps"][0]["name"], "ProfilerStep#4");
  const json& row = summary["ranks"].at(0);
  double parts = 0;
  for (const char* part : {"forward", "backward", "optimizer", "data", "exposed_communication",
                           "bubble", "host_gap", "other"})
    parts += row[part].get<double>();
  EXPECT_NEAR(parts, row["seconds"].get<double>(), 1e-9);
  std::map<std::string, json> operators;
  for (const json& op : summary["operators"]) operators[op["name"]] = op;
  ASSERT_TRUE(operators.contains("aten::addmm"));
  EXPECT_GT(operators["aten::addmm"]["flops"].get<double>(), 0);
  EXPECT_GT(operators["aten::addmm"]["tflops"].get<double>(), 0);
  EXPECT_GT(operators["aten::addmm"]["intensity"].get<double>(), 0);
  // Without the profile's instruments a step has as many FLOPs.
  double flops = 0;
  for (const json& region : summary["regions"]) flops += region["flops"].get<double>();
  EXPECT_GE(flops, 2.9 * run.model->flops_forward() * 4);
  for (const char* file :
       {"trace.json", "rank0_memory.html", "rank0_memory.json", "rank0_memory_snapshot.pickle"})
    EXPECT_TRUE(std::filesystem::exists(dir / "profile" / file)) << file;
}

// An operator under the ledger is one operator: it is not seen twice.
TEST(Profiler, OperatorsAreCountedOnce) {
  const test::TempDir dir;
  Profiler profiler({.on = true, .wait = 0, .warm_up = 0, .steps = 1}, {.run_dir = dir.path()});
  const at::Tensor a = at::rand({64, 64});
  profiler.begin_step(0);
  for (int i = 0; i < 3; ++i) {
    const ModuleScope here("layer");
    at::mm(a, a);
  }
  EXPECT_TRUE(profiler.end_step());
  profiler.finish();
  const json summary = read_json(dir / "profile/summary.json");
  EXPECT_EQ(summary, json::parse(profiler.summary()));
  for (const json& op : summary["operators"])
    if (op["name"] == "aten::mm") {
      EXPECT_EQ(op["calls"], 3);
      EXPECT_EQ(op["flops"], 3 * 2.0 * 64 * 64 * 64);
      EXPECT_NEAR(op["intensity"].get<double>(), 2.0 * 64 * 64 * 64 / (3 * 64 * 64 * 4), 1e-9);
    }
  EXPECT_EQ(summary["modules"].at(0)["name"], "layer");
}

// What was there before the profile is in its memory, too.
TEST(Profiler, MemoryKnowsWeightsAndStates) {
  const test::TempDir dir;
  TestRun run = profiled_run(dir);
  run.trainer.fit();
  int64_t weights = 0;
  for (const Param& param : run.model->params())
    weights += static_cast<int64_t>(param.tensor.nbytes());
  const json timeline = read_json(dir / "profile/rank0_memory.json");
  const json& first = timeline[1].at(0);  // 0, parameter, optimizer state, ...
  EXPECT_GE(first[1].get<int64_t>(), weights);
  EXPECT_LT(first[1].get<int64_t>(), weights * 11 / 10 + 4096);
  EXPECT_GE(first[2].get<int64_t>(), 2 * weights);  // Adam
}

TEST(Profiler, AProfileCutShortIsWritten) {
  const test::TempDir dir;
  TestRun run = profiled_run(dir, {"train.global_batch=2"});
  run.sink.on_step = [](const StepRecord& record) {
    if (record.step == 6) std::raise(SIGTERM);
  };
  EXPECT_EQ(run.trainer.fit().reason, "signal");
  EXPECT_EQ(read_json(dir / "profile/summary.json")["steps"].size(), 2u);
}

TEST(Profiler, ARunningJobIsProfiledBySignalAndByFile) {
  const test::TempDir dir;
  RunOptions options = run_of(mlp_run);
  options.run.dir = dir.path().string();
  options.train.steps = 400;
  options.profile.steps = 2;
  options.checkpoint.at_end = false;
  TestRun run(options);
  run.sink.on_step = [&](const StepRecord& record) {
    if (record.step == 20) std::raise(SIGUSR2);
    if (record.step == 100) std::ofstream(dir / "profile.request") << "3\n";
    if (record.step > 100 && record.step < 200) usleep(5000);  // it is looked for now and then
  };
  EXPECT_EQ(run.trainer.fit().step, 400);
  std::map<size_t, int> sizes;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "profile")) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("step"));
    ++sizes[read_json(entry.path() / "summary.json")["steps"].size()];
  }
  EXPECT_EQ(sizes, (std::map<size_t, int>{{2, 1}, {3, 1}}));
  EXPECT_FALSE(std::filesystem::exists(dir / "profile.request"));
  EXPECT_TRUE(std::filesystem::exists(dir / "profile/step21/rank0_trace.json"));
}

TEST(Profiler, OneAtATimeInAProcess) {
  const test::TempDir dir;
  const ProfileOptions now{.on = true, .wait = 0, .warm_up = 0, .steps = 1};
  Profiler first(now, {.run_dir = dir / "a"}), second(now, {.run_dir = dir / "b"});
  first.begin_step(0);
  EXPECT_TRUE(test::contains(test::error_of([&] { second.begin_step(0); }),
                             "a profile is under way in this process already"));
  first.end_step();
}

TEST(Profiler, WeightsAreThoseOfARunWithoutIt) {
  const test::TempDir dir;
  TestRun with = profiled_run(dir, {"train.steps=12"});
  with.trainer.fit();
  RunOptions plain = with.options;
  plain.profile.on = false;
  plain.run.dir = (dir / "plain").string();
  TestRun without(plain);
  without.trainer.fit();
  const auto expected = without.weights();
  for (const auto& [name, tensor] : with.weights())
    EXPECT_TRUE(tensor.equal(expected.at(name))) << name;
}

}  // namespace
}  // namespace braid::train
