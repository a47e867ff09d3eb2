// SPDX-License-Identifier: BSD-3-Clause
// braid profile as one types it: one rank and two, alone and beside a run.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "cli/braid.h"

namespace braid::test {
namespace {

using nlohmann::json;

struct ProfileCommand : Cli {
  json file(const std::string& name) const { return json::parse(text_of(dir / name)); }

  // Which ranks of a merged trace have a step, and the regions of their steps.
  static std::map<std::string, std::set<std::string>> ranks_of(const json& trace) {
    std::map<int64_t, std::string> names;
    std::map<std::string, std::set<std::string>> found;
    for (const json& event : trace["traceEvents"])
      if (event.value("name", "") == "process_name") names[event["pid"]] = event["args"]["name"];
    for (const json& event : trace["traceEvents"])
      if (event.value("cat", "") == "user_annotation")
        found[names[event["pid"]]].insert(event["name"].get<std::string>());
    return found;
  }

  void expect_two_ranks(const Outcome& done, const std::string& run) const {
    ASSERT_EQ(done.code, 0) << done.err;
    const auto ranks = ranks_of(file(run + "/profile/trace.json"));
    for (const char* rank : {"rank 0", "rank 1"}) {
      ASSERT_TRUE(ranks.contains(rank)) << rank;
      for (const char* name : {"ProfilerStep#2", "ProfilerStep#3", "## forward ##",
                               "## backward ##", "## optimizer ##", "## communication ##"})
        EXPECT_TRUE(ranks.at(rank).contains(name)) << rank << " " << name;
    }
    const json summary = file(run + "/profile/summary.json");
    ASSERT_EQ(summary["ranks"].size(), 2u);
    EXPECT_EQ(summary["ranks"][1]["rank"], 1);
    EXPECT_GT(summary["ranks"][1]["communication"].get<double>(), 0);
  }

  const Words two = {"--ranks", "2", "--steps", "2", "--wait", "1", "--warm-up", "1"};
  Outcome profile(const std::string& name, Words more) const {
    Words words = {"profile", config(name)};
    words.insert(words.end(), more.begin(), more.end());
    return braid_run(words);
  }
  Outcome on_two(const std::string& name, const Words& sets) const {
    Words words = two;
    for (const std::string& set : sets) words.insert(words.end(), {"--set", set});
    return profile(name, words);
  }
};

TEST_F(ProfileCommand, PrintsASummaryAndLeavesTheFiles) {
  const Outcome done = profile("mlp", {"--steps", "5"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* word :
       {"5 steps, ProfilerStep#4 to ProfilerStep#8", "operator", "aten::addmm", "module", "forward",
        "host gap", "instruments (ledger and regions", "trace.json"})
    EXPECT_TRUE(contains(done.out, word));
  for (const char* name : {"trace.json", "rank0_trace.json", "summary.json", "rank0_memory.html"})
    EXPECT_TRUE(std::filesystem::exists(dir / "mlp/profile" / name)) << name;
  EXPECT_FALSE(std::filesystem::exists(dir / "mlp/checkpoints/step-00000012"));
  EXPECT_GT(file("mlp/profile/summary.json")["overhead"]["ratio"].get<double>(), 0);
}

TEST_F(ProfileCommand, ARunThatLiesThereStaysAsItIs) {
  ASSERT_EQ(train("mlp").code, 0);
  const std::string log = text_of(dir / "mlp/log.jsonl"), kept = text_of(dir / "mlp/config.yaml");
  const Outcome done = profile("mlp", {"--steps", "1", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(json_of(done)["steps"].size(), 1u);
  EXPECT_EQ(text_of(dir / "mlp/log.jsonl"), log);
  EXPECT_EQ(text_of(dir / "mlp/config.yaml"), kept);
}

TEST_F(ProfileCommand, TwoRanksOfData) { expect_two_ranks(on_two("mlp", {"mesh.data=2"}), "mlp"); }

// Perfetto's own reader, if it is there.
TEST_F(ProfileCommand, PerfettoReadsTheMergedTrace) {
  const std::string venv = BRAID_SOURCE_DIR "/.deps/venv";
  const std::string ask = "node " BRAID_SOURCE_DIR "/tests/report/read_trace.js " + venv + " ";
  const auto shell = [](const std::string& line) { return run_command({"/bin/sh", "-c", line}); };
  if (shell("node --version && " + venv + "/bin/python -c 'import viztracer'").code != 0)
    GTEST_SKIP() << "no node, or no viztracer in " << venv << ": tools/venv makes it";
  ASSERT_EQ(on_two("mlp", {"mesh.data=2"}).code, 0);
  const std::string steps =
      "select p.name, s.name, s.dur > 0 from slice s join thread_track t on "
      "s.track_id = t.id join thread using (utid) join process p using "
      "(upid) where s.name glob 'ProfilerStep#*' order by 1, 2";
  const std::string inside =
      "select r.name, count(*) from slice r join slice s on r.track_id = s.track_id and r.ts >= "
      "s.ts and r.ts + r.dur <= s.ts + s.dur where s.name glob 'ProfilerStep#*' and r.name in "
      "('## forward ##', '## backward ##', '## optimizer ##') group by 1 order by 1";
  const std::string losses = "select sum(value) from stats where severity = 'error'";
  const Outcome read = shell(ask + at("mlp/profile/trace.json") + " \"" + steps + "\" \"" + inside +
                             "\" \"" + losses + "\"");
  ASSERT_EQ(read.code, 0) << read.err;
  EXPECT_EQ(read.out, R"([["rank 0","ProfilerStep#2",1],["rank 0","ProfilerStep#3",1],)"
                      R"(["rank 1","ProfilerStep#2",1],["rank 1","ProfilerStep#3",1]])"
                      "\n"
                      R"([["## backward ##",4],["## forward ##",4],["## optimizer ##",4]])"
                      "\n[[0]]\n");
}

TEST_F(ProfileCommand, TwoRanksOfZero3) {
  expect_two_ranks(on_two("gpt", {"mesh.shard=2", "train.zero=3"}), "gpt");
}

TEST_F(ProfileCommand, TwoStagesOfAPipeline) {
  const Outcome done = on_two("gpt", {"mesh.pipeline=2", "train.micro_batch=1", "model.layers=2"});
  expect_two_ranks(done, "gpt");
  const json ranks = file("gpt/profile/summary.json")["ranks"];
  EXPECT_GT(ranks[0]["bubble"].get<double>(), 0);
  EXPECT_GT(ranks[1]["bubble"].get<double>(), 0);
}

// The launcher passes the signal on, and the ranks agree on the steps.
TEST_F(ProfileCommand, ARunningJobOfTwoRanksIsProfiled) {
  Command run(braid_words({"train", config("long"), "--ranks", "2", "--set", "mesh.data=2", "--set",
                           "profile.steps=2"}));
  ASSERT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":3,")) << run.err();
  run.send(SIGUSR2);
  ASSERT_TRUE(run.saw(dir / "long/out.log", "profile of 2 steps")) << run.err();
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 75);
  int profiles = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir / "long/profile")) {
    ++profiles;
    for (const char* name : {"rank0_trace.json", "rank1_trace.json", "trace.json", "summary.json"})
      EXPECT_TRUE(std::filesystem::exists(entry.path() / name)) << name;
  }
  EXPECT_EQ(profiles, 1);
}

}  // namespace
}  // namespace braid::test
