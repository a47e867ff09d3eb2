// SPDX-License-Identifier: BSD-3-Clause
// The files about a memory history: PyTorch's timeline and the memory snapshot.
#include "braid/report/memory_files.h"

#include <gtest/gtest.h>

#include <set>

#include "report/memory_points.h"
#include "report/memory_samples.h"
#include "support/expect.h"

namespace braid::test {
namespace {

using nlohmann::json;

TEST(MemoryTimeline, HasTheBytesOfEachCategoryAfterEachChange) {
  const json read = json::parse(report::memory_timeline_json(small_history()));
  EXPECT_EQ(read[0], (json{0, 10, 11, 20, 30, 40, 45, 50})) << "microseconds";
  ASSERT_EQ(read[1].size(), 8U);
  EXPECT_EQ(read[1][0], (json{0, 1000, 0, 0, 0, 0, 0, 0, 0})) << "what was there before";
  EXPECT_EQ(read[1][1], (json{0, 1000, 0, 0, 600, 0, 0, 0, 0}));
  EXPECT_EQ(read[1][2], (json{0, 1000, 0, 0, 0, 600, 0, 0, 0})) << "kept for the backward pass";
  EXPECT_EQ(read[1][4], (json{0, 1000, 0, 0, 300, 600, 50, 0, 0}));
  EXPECT_EQ(read[1][7], (json{0, 1000, 0, 0, 0, 0, 50, 0, 0}));
}

TEST(MemoryTimeline, TheRawFormHasPyTorchsActions) {
  const json read = json::parse(report::memory_raw_json(small_history()));
  const json wanted = {{-1, 1, 1000, 0},    {10000, 2, 600, 3},  {11000, 3, -600, 3},
                       {11000, 3, 600, 4},  {20000, 2, 300, 3},  {30000, 2, 50, 5},
                       {40000, 4, -300, 3}, {45000, 3, -600, 4}, {45000, 3, 600, 3},
                       {50000, 4, -600, 3}};
  EXPECT_EQ(read, wanted);
}

TEST(MemoryTimeline, ThinningKeepsThePeakAndTheEnd) {
  std::vector<report::MemoryPoint> points(100'000);
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].nanoseconds = static_cast<int64_t>(i) * 10;
    points[i].bytes[3] = static_cast<int64_t>(i % 17);
  }
  points[54'321].bytes[4] = 5000;
  points.back().bytes[0] = 7;
  const auto thin = report::thinned(points, 200);
  EXPECT_LE(thin.size(), 601U);
  EXPECT_EQ(thin[report::highest_point(thin)].nanoseconds, 543'210);
  EXPECT_EQ(report::total_of(thin[report::highest_point(thin)].bytes),
            report::total_of(points[54'321].bytes));
  EXPECT_EQ(thin.back().bytes, points.back().bytes);
  EXPECT_EQ(report::thinned(points, 50'000).size(), points.size());
}

json trace_of(const json& snapshot) { return snapshot["device_traces"][0]; }

std::vector<std::string> actions_of(const json& trace) {
  std::vector<std::string> actions;
  for (const json& entry : trace) actions.push_back(entry["action"]);
  return actions;
}

TEST(MemorySnapshot, HasTheEntriesThatTheViewerReads) {
  const json snapshot = read_pickle(report::memory_snapshot(small_history()))["value"];
  const json trace = trace_of(snapshot);
  EXPECT_EQ(
      actions_of(trace),
      (std::vector<std::string>{"alloc", "alloc", "alloc", "alloc", "free_requested",
                                "free_completed", "free_requested", "free_completed", "snapshot"}));
  EXPECT_EQ(trace[1]["size"], 600);
  EXPECT_EQ(trace[1]["stream"], 0);
  EXPECT_EQ(trace[1]["time_us"], 10);
  EXPECT_EQ(trace[1]["category"], "activation") << "kept for the backward pass, if not at once";
  EXPECT_EQ(trace[1]["frames"],
            (json{{{"filename", "layers.0"}, {"line", 0}, {"name", "aten::mm"}}}));
  EXPECT_EQ(trace[0]["category"], "parameter");
  EXPECT_EQ(trace[0]["frames"][0]["filename"], "outside of modules");
  EXPECT_EQ(trace.back()["category"], "unknown") << "the viewer wants one";
  EXPECT_EQ(trace[4]["addr"], trace[2]["addr"]);
  EXPECT_EQ(snapshot["allocator_settings"]["device"], "cpu");
}

TEST(MemorySnapshot, TheBlocksOfTheSegmentFillItAndHoldEveryAddress) {
  const json snapshot = read_pickle(report::memory_snapshot(small_history()))["value"];
  ASSERT_EQ(snapshot["segments"].size(), 1U);
  const json segment = snapshot["segments"][0];
  EXPECT_EQ(segment["requested_size"], 1000 + 50);
  EXPECT_EQ(segment["active_size"], 1024 + 512);
  EXPECT_EQ(segment["segment_pool_id"], (json{0, 0}));
  EXPECT_EQ(segment["is_expandable"], false);
  int64_t at = segment["address"];
  std::vector<std::string> states;
  for (const json& block : segment["blocks"]) {
    EXPECT_EQ(block["address"], at);
    at += block["size"].get<int64_t>();
    states.push_back(block["state"]);
  }
  EXPECT_EQ(at, segment["address"].get<int64_t>() + segment["total_size"].get<int64_t>());
  EXPECT_EQ(states, (std::vector<std::string>{"active_allocated", "inactive", "active_allocated"}));
  for (const json& entry : trace_of(snapshot)) {
    if (entry["action"] == "snapshot") continue;
    EXPECT_GE(entry["addr"], segment["address"]);
    EXPECT_LT(entry["addr"].get<int64_t>(), at);
  }
}

TEST(MemorySnapshot, KnowsOnlyTheOpcodesOfTheViewer) {
  const std::set<std::string> known = {"PROTO",
                                       "FRAME",
                                       "STOP",
                                       "MARK",
                                       "MEMOIZE",
                                       "BINPUT",
                                       "LONG_BINPUT",
                                       "BINGET",
                                       "LONG_BINGET",
                                       "NONE",
                                       "NEWTRUE",
                                       "NEWFALSE",
                                       "BININT",
                                       "BININT1",
                                       "BININT2",
                                       "LONG1",
                                       "BINFLOAT",
                                       "BINUNICODE",
                                       "SHORT_BINUNICODE",
                                       "EMPTY_LIST",
                                       "APPEND",
                                       "APPENDS",
                                       "LIST",
                                       "EMPTY_DICT",
                                       "SETITEM",
                                       "SETITEMS",
                                       "DICT",
                                       "EMPTY_TUPLE",
                                       "TUPLE",
                                       "TUPLE1",
                                       "TUPLE2",
                                       "TUPLE3"};
  report::MemoryHistory history = small_history();
  history.names[1] = std::string(300, 'm');
  history.changes[3].bytes = history.changes[5].bytes = int64_t{5} << 40;
  const json read = read_pickle(report::memory_snapshot(history));
  EXPECT_EQ(trace_of(read["value"])[2]["size"], int64_t{5} << 40);
  for (const std::string name : read["opcodes"]) EXPECT_TRUE(known.contains(name)) << name;
}

TEST(MemorySnapshot, PyTorchsOwnScriptReadsIt) {
  const std::string script = BRAID_SOURCE_DIR "/.deps/torch/torch/cuda/_memory_viz.py";
  if (!std::filesystem::exists(script)) GTEST_SKIP() << "no " << script;
  TempDir dir;
  const std::string file = (dir / "snapshot.pickle").string();
  std::ofstream(file, std::ios::binary) << report::memory_snapshot(small_history());
  const auto run = [&](const std::string& command) {
    return output_of_command("python3 -W ignore " + script + " " + command + " " + file);
  };
  const std::string stats = run("stats"), trace = run("trace");
  EXPECT_TRUE(contains(stats, "segments: 1"));
  EXPECT_TRUE(contains(stats, "total_allocated: 1.0KiB"));
  EXPECT_TRUE(contains(trace, "9 entries"));
  EXPECT_TRUE(contains(trace, "b = seg_0[1024:600.0B]"));
  EXPECT_TRUE(contains(trace, "del c # 300.0B"));
}

TEST(MemorySnapshot, KeepsTheLastEntries) {
  report::MemoryHistory history = small_history();
  for (uint64_t i = 0; i < 3000; ++i)
    for (const auto what : {report::MemoryChange::What::taken, report::MemoryChange::What::freed})
      history.changes.push_back({what, 7, 1, 4, 10 + i, 64, 60'000});
  const json snapshot = read_pickle(report::memory_snapshot(history, 1000))["value"];
  const json trace = trace_of(snapshot);
  EXPECT_LE(trace.size(), 1000U);
  EXPECT_GE(trace.size(), 997U);
  EXPECT_EQ(trace.back()["action"], "free_completed");
  EXPECT_EQ(snapshot["segments"][0]["requested_size"], 1050) << "what is alive is there, though";
}

TEST(MemorySnapshot, AnAllocationThatFailedIsItsLastEntry) {
  report::MemoryHistory history = small_history();
  history.did_not_fit = 4096;
  history.limit = 2000;
  const json last = trace_of(read_pickle(report::memory_snapshot(history))["value"]).back();
  EXPECT_EQ(last["action"], "oom");
  EXPECT_EQ(last["size"], 4096);
  EXPECT_EQ(last["device_free"], 2000 - 1050);
}

TEST(MemoryFiles, AllFourAreWrittenAndNamedByRank) {
  TempDir dir;
  const auto files = report::write_memory_files(small_history(), dir / "profile");
  std::vector<std::string> names;
  for (const auto& file : files) {
    names.push_back(file.filename().string());
    EXPECT_GT(std::filesystem::file_size(file), 100U) << file;
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"rank3_memory.html", "rank3_memory.json",
                                      "rank3_memory.raw.json", "rank3_memory_snapshot.pickle"}));
}

TEST(MemoryFiles, AnEmptyHistoryMakesWholeFiles) {
  const report::MemoryHistory none{.device = "cpu", .names = {""}, .changes = {}};
  EXPECT_EQ(json::parse(report::memory_raw_json(none)), json::array());
  EXPECT_EQ(json::parse(report::memory_timeline_json(none))[0].size(), 1U);
  EXPECT_TRUE(read_pickle(report::memory_snapshot(none))["value"]["segments"].empty());
  EXPECT_TRUE(contains(report::memory_page(none), "<title>braid: memory of rank 0, cpu</title>"));
}

}  // namespace
}  // namespace braid::test
