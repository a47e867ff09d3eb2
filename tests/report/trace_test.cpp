// SPDX-License-Identifier: BSD-3-Clause
// Traces by hand, whose times can be added up on paper.
#include "braid/report/trace.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "braid/core/error.h"
#include "report/trace_read.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::report {
namespace {

using nlohmann::json;

json span(const std::string& category, const std::string& name, double begin, double end,
          json arguments = json::object(), int64_t thread = 7) {
  return {{"ph", "X"},     {"cat", category}, {"name", name},       {"pid", 42},
          {"tid", thread}, {"ts", begin},     {"dur", end - begin}, {"args", std::move(arguments)}};
}
json annotation(const std::string& name, double begin, double end) {
  return span("user_annotation", name, begin, end);
}

struct TraceFiles : testing::Test {
  std::filesystem::path write(const std::string& name, const json& events, int64_t base = 1000) {
    std::ofstream(dir / name) << json{
        {"schemaVersion", 1},
        {"baseTimeNanoseconds", base},
        {"traceEvents", events}}.dump();
    return dir / name;
  }
  test::TempDir dir;
};

// One step of 100 us: data 10, forward 30 (linear 20 of which addmm 15), backward 30 with 8 of
// waiting in it, optimizer 10, the rest nothing.
json one_step() {
  return {annotation("ProfilerStep#4", 0, 100),
          annotation("## data ##", 0, 10),
          annotation("## forward ##", 10, 40),
          annotation("layers.0", 10, 35),
          span("cpu_op", "aten::linear", 12, 32, {{"Sequence number", 1}}),
          span("cpu_op", "aten::addmm", 15, 30, {{"Sequence number", 1}}),
          annotation("## backward ##", 40, 70),
          span("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 42, 60,
               {{"Sequence number", 1}}),
          span("cpu_op", "aten::mm", 44, 56),
          annotation("## communication ##", 60, 68),
          annotation("all_reduce", 60, 68),
          annotation("## optimizer ##", 75, 85),
          span("cpu_op", "aten::_fused_adamw_", 76, 84)};
}

TEST_F(TraceFiles, PartsOfAStepAddUpToIt) {
  const auto file = write("rank0_trace.json", one_step());
  const json profile =
      json::parse(rank_profile({.file = file,
                                .rank = 0,
                                .costs = {{.name = "aten::addmm", .flops = 30e6, .bytes = 1e6}},
                                .forward_flops = 30e6}));
  const json& row = profile["row"];
  const auto us = [&](const char* key) { return row[key].get<double>() * 1e6; };
  EXPECT_NEAR(us("seconds"), 100, 1e-6);
  EXPECT_NEAR(us("forward"), 20, 1e-6);
  EXPECT_NEAR(us("backward"), 18, 1e-6);
  EXPECT_NEAR(us("optimizer"), 8, 1e-6);
  EXPECT_NEAR(us("data"), 10, 1e-6);
  EXPECT_NEAR(us("exposed_communication"), 8, 1e-6);
  EXPECT_NEAR(us("bubble"), 0, 1e-6);
  EXPECT_NEAR(us("host_gap"), 36, 1e-6);
  EXPECT_NEAR(us("other"), 0, 1e-6);

  const json summary = json::parse(profile_summary({profile.dump()}));
  const json& first = summary["operators"][0];
  EXPECT_EQ(first["name"], "aten::addmm");
  EXPECT_NEAR(first["seconds"].get<double>() * 1e6, 15, 1e-6);
  EXPECT_NEAR(first["share"].get<double>(), 15.0 / 46, 1e-9);
  EXPECT_NEAR(first["tflops"].get<double>(), 30e6 / 15e-6 * 1e-12, 1e-9);
  EXPECT_NEAR(first["intensity"].get<double>(), 30, 1e-9);
  EXPECT_EQ(summary["modules"][0]["name"], "layers.0");
  EXPECT_NEAR(summary["modules"][0]["forward"].get<double>() * 1e6, 20, 1e-6);
  EXPECT_NEAR(summary["modules"][0]["backward"].get<double>() * 1e6, 18, 1e-6);
  EXPECT_NEAR(summary["regions"][0]["tflops"].get<double>(), 30e6 / 30e-6 * 1e-12, 1e-9);
}

TEST_F(TraceFiles, WaitingForAMessageIsABubbleOfAPipeline) {
  json events = one_step();
  for (json& event : events)
    if (event["name"] == "all_reduce") event["name"] = "recv";
  const auto file = write("rank0_trace.json", events);
  const auto row = [&](bool pipelined) {
    return json::parse(rank_profile({.file = file, .pipelined = pipelined}))["row"];
  };
  EXPECT_NEAR(row(true)["bubble"].get<double>() * 1e6, 8, 1e-6);
  EXPECT_NEAR(row(true)["exposed_communication"].get<double>() * 1e6, 0, 1e-6);
  EXPECT_NEAR(row(false)["bubble"].get<double>() * 1e6, 0, 1e-6);
}

// On a GPU kernels count, wherever the host was then; a sum beside a kernel is not exposed.
TEST_F(TraceFiles, KernelsCountOnAGpu) {
  const json events = {annotation("ProfilerStep#4", 0, 50),
                       annotation("## forward ##", 0, 20),
                       span("cpu_op", "aten::mm", 5, 8, {{"External id", 3}}),
                       annotation("## backward ##", 20, 40),
                       span("cpu_op", "aten::mm", 22, 25, {{"External id", 4}}),
                       span("kernel", "gemm", 10, 40, {{"External id", 3}}),
                       span("kernel", "gemm", 40, 90, {{"External id", 4}}),
                       span("kernel", "ncclDevKernel_AllReduce", 80, 100, {{"External id", 9}})};
  const json profile = json::parse(rank_profile({.file = write("rank0_trace.json", events)}));
  const auto us = [&](const char* key) { return profile["row"][key].get<double>() * 1e6; };
  EXPECT_EQ(profile["device"], "gpu");
  EXPECT_NEAR(us("seconds"), 100, 1e-6);
  EXPECT_NEAR(us("forward"), 30, 1e-6);
  EXPECT_NEAR(us("backward"), 50, 1e-6);
  EXPECT_NEAR(us("communication"), 20, 1e-6);
  EXPECT_NEAR(us("exposed_communication"), 10, 1e-6);
  EXPECT_NEAR(us("host_gap"), 10, 1e-6);
}

TEST_F(TraceFiles, MergedTracesHaveAProcessARankAndOneClock) {
  const json names = {{"ph", "M"}, {"name", "process_labels"},   {"pid", 42}, {"tid", 0},
                      {"ts", 0},   {"args", {{"labels", "CPU"}}}};
  const json flow = {{"ph", "s"}, {"id", 5}, {"pid", 42}, {"tid", 7}, {"ts", 1}, {"cat", "fwdbwd"}};
  const json events = {names, span("cpu_op", "aten::mm", 10, 20), flow};
  const auto first = write("rank0_trace.json", events, 1'000'000);
  const auto second = write("rank1_trace.json", events, 3'000'000);
  const auto merged = dir / "trace.json";
  EXPECT_EQ(
      merge_traces({{first, 0}, {second, 1, -500'000}, {dir / "rank2_trace.json", 2}}, merged), 1);
  std::map<std::string, int64_t> pids;
  std::map<int64_t, double> times;
  std::set<int64_t> flows;
  const json trace = json::parse(std::ifstream(merged));
  EXPECT_EQ(trace["baseTimeNanoseconds"], 1'000'000);
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") pids[event["args"]["name"]] = event["pid"];
    if (event["ph"] == "X") times[event["pid"]] = event["ts"];
    if (event["ph"] == "s") flows.insert(event["id"].get<int64_t>());
  }
  ASSERT_EQ(pids.size(), 2u);
  EXPECT_NEAR(times.at(pids.at("rank 0")), 10, 1e-9);
  EXPECT_NEAR(times.at(pids.at("rank 1")), 10 + 2000 - 500, 1e-9);
  EXPECT_EQ(flows.size(), 2u);
}

TEST_F(TraceFiles, WhatIsNoTraceIsNamed) {
  std::ofstream(dir / "broken.json") << R"({"traceEvents": [{"ph")";
  const auto error = test::error_of([&] { rank_profile({.file = dir / "broken.json"}); });
  EXPECT_TRUE(test::contains(error, "broken.json is not a trace"));
  const auto none = write("none.json", {span("cpu_op", "aten::mm", 0, 1)});
  const auto steps = test::error_of([&] { rank_profile({.file = none}); });
  EXPECT_TRUE(test::contains(steps, "no ProfilerStep"));
}

TEST(Intervals, AreSets) {
  const Intervals a({{0, 10}, {20, 30}, {5, 12}}), b({{8, 22}});
  EXPECT_EQ(a.all(), (std::vector<Intervals::Interval>{{0, 12}, {20, 30}}));
  EXPECT_EQ((a & b).all(), (std::vector<Intervals::Interval>{{8, 12}, {20, 22}}));
  EXPECT_EQ((a - b).all(), (std::vector<Intervals::Interval>{{0, 8}, {22, 30}}));
  EXPECT_EQ((a | b).all(), (std::vector<Intervals::Interval>{{0, 30}}));
  EXPECT_TRUE(a.contains(11) && !a.contains(12) && !a.contains(15));
}

}  // namespace
}  // namespace braid::report
