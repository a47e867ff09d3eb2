// SPDX-License-Identifier: BSD-3-Clause
// braid plan: a search, its files, its questions, on a machine without a GPU.
#include <gtest/gtest.h>

#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

// A node of four small GPUs. Its numbers are made up: what is tested is what is said about them.
const std::string lab_cluster = R"(
name: lab
title: a lab of the tests
source: made up
gpus_per_node: 4
nodes: 2
host: {cores: 8, memory: 16 GiB, copy_bandwidth: 10e9, read_bandwidth: 1e9, write_bandwidth: 1e9}
inside: {latency: 2e-6, bandwidth: 100e9, share: 0.7}
between: {latency: 5e-6, bandwidth: 10e9, share: 0.7}
gpu:
  name: Lab GPU
  memory: 1 GiB
  bandwidth: 1e12
  peak: {fp64: 10e12, fp32: 10e12, tf32: 50e12, bf16: 100e12, fp16: 100e12}
  launch: 5e-6
  gemm_share: 0.7
  stream_share: 0.8
  context: 100 MiB
  gemm_workspace: 8 MiB
)";

struct PlanCli : Cli {
  void SetUp() override {
    Cli::SetUp();
    std::ofstream(dir / "lab.yaml") << lab_cluster;
  }
  Outcome plan(const std::string& name, Words more, const std::string& cluster = "lab.yaml") const {
    Words words = {"plan", config(name), "--cluster", at(cluster)};
    words.insert(words.end(), more.begin(), more.end());
    return braid_run(words);
  }
  // The lab with one line changed.
  void change_lab(const std::string& from, const std::string& to) const {
    std::string text = lab_cluster;
    const size_t where = text.find(from);
    ASSERT_NE(where, std::string::npos) << from;
    text.replace(where, from.size(), to);
    std::ofstream(dir / "lab.yaml") << text;
  }
};

TEST_F(PlanCli, FlagsThatWouldBeIgnoredAreRefused) {
  for (const Words& more :
       {Words{"--scaling", "1,2", "--html", at("a.html")}, Words{"--cheapest", "2", "--as-is"},
        Words{"--explain", "--min-gpus"}, Words{"--effect", "train.zero=1", "--apply", at("a")}})
    expect_complaint(plan("gpt", more), Exit::usage,
                     {more[0], "together with", more.back() == at("a") ? "--apply" : "--"});
  EXPECT_FALSE(fs::exists(dir / "a.html"));
  for (const char* flag : {"--cheapest", "--scaling", "--gpus"})
    expect_complaint(plan("gpt", {flag, "1000000"}), Exit::config,
                     {std::string(flag) + " 1000000", "lab has 8 GPUs"});
  expect_complaint(plan("gpt", {"--global-batch", "9223372036854775807"}), Exit::config,
                   {"--global-batch", "1,000,000,000"});
  expect_complaint(plan("gpt", {"--as-is", "--seconds", "1e-9"}), Exit::config,
                   {"no answer within", "--seconds 60"});
}

TEST_F(PlanCli, SearchesAndTellsATable) {
  const Outcome done = plan("gpt", {"--gpus", "2"});
  ASSERT_EQ(done.code, 0) << done.err;
  for (const char* part : {"gpt of", "on 2 x Lab GPU (lab), global batch 4", "layout", "s/step",
                           "tokens/s", "choices:", "run dry; searched for", "a step:"})
    EXPECT_TRUE(contains(done.out, part));
}

TEST_F(PlanCli, JsonRanksPlansWithBytesAndTimes) {
  const nlohmann::json json = json_of(plan("gpt", {"--gpus", "2", "--json", "--no-offload"}));
  ASSERT_GE(json["plans"].size(), 2u);
  double before = std::numeric_limits<double>::infinity();
  for (const nlohmann::json& plan : json["plans"]) {
    if (!plan["fits"].get<bool>()) continue;
    const double pace = plan["tokens_or_samples_per_s"];
    EXPECT_LE(pace, before * (1 + 1e-9));
    before = pace;
    double sum = 0;
    for (const auto& [part, seconds] : plan["parts"].items()) sum += seconds.get<double>();
    EXPECT_NEAR(sum, plan["step_seconds"].get<double>(), 1e-6 * sum);
    for (const nlohmann::json& rank : plan["peak_bytes"]) {
      int64_t bytes = 0;
      for (const auto& [kind, count] : rank["by_category"].items()) bytes += count.get<int64_t>();
      EXPECT_EQ(bytes, rank["requested"]);
      EXPECT_LE(rank["requested"], rank["reserved"]);
      EXPECT_LE(rank["reserved"], rank["device"]);
    }
  }
  EXPECT_EQ(json["request"]["gpus"], 2);
  EXPECT_EQ(json["cluster"]["gpu"], "Lab GPU");
  EXPECT_GT(json["search"]["choices"], 0);
}

TEST_F(PlanCli, WritesAPageATraceAndAConfigThatTrains) {
  const Outcome done =
      plan("gpt", {"--gpus", "1", "--html", at("out/plan.html"), "--trace", at("trace.json"),
                   "--apply", at("best.yaml"), "--leave", "--set", "train.steps=2"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.out, "wrote " + at("best.yaml")));
  EXPECT_TRUE(contains(text_of(dir / "out/plan.html"), "braid: plan of gpt on 1 x Lab GPU"));
  EXPECT_FALSE(nlohmann::json::parse(text_of(dir / "trace.json"))["traceEvents"].empty());
  EXPECT_TRUE(contains(text_of(dir / "best.yaml"), "# Written by: braid plan"));
  ASSERT_TRUE(fs::exists(dir / "gpt/plan.json"));
  // The run goes on beside a plan of another device, and says that it cannot be compared.
  const Outcome run = braid_run({"train", at("best.yaml"), "--quiet"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "plan.json is for 1 rank on cuda, this is a run of 1 rank on cpu"));
}

TEST_F(PlanCli, AsItIsTakesTheConfigsOwnMesh) {
  const nlohmann::json json =
      json_of(plan("gpt", {"--as-is", "--gpus", "2", "--set", "mesh.tensor=2", "--json"}));
  ASSERT_EQ(json["plans"].size(), 1u);
  EXPECT_EQ(json["plans"][0]["mesh"]["tensor"], 2);
  EXPECT_EQ(json["plans"][0]["micro_batch"], 4);
}

TEST_F(PlanCli, AnswersQuestions) {
  const nlohmann::json micro = json_of(plan("gpt", {"--gpus", "1", "--max-micro-batch", "--json"}));
  EXPECT_EQ(micro["answer"]["value"], 4);  // the whole batch
  EXPECT_GT(json_of(plan("gpt", {"--gpus", "1", "--max-size", "--json"}))["answer"]["value"], 0);
  EXPECT_EQ(json_of(plan("gpt", {"--min-gpus", "--json"}))["answer"]["value"], 1);
  EXPECT_GT(json_of(plan("gpt", {"--cheapest", "2", "--json"}))["answer"]["value"], 0);
  const nlohmann::json curve = json_of(plan("gpt", {"--scaling", "1,2", "--json"}))["scaling"];
  EXPECT_EQ(curve["strong"].size(), 2u);
  EXPECT_EQ(curve["weak"][0]["efficiency"], 1);
  const Outcome effect = plan("gpt", {"--gpus", "1", "--effect", "train.precision=bf16"});
  EXPECT_EQ(effect.code, 0) << effect.err;
  EXPECT_TRUE(contains(effect.out, "as it is"));
  const Outcome explained = plan("gpt", {"--gpus", "1", "--explain"});
  EXPECT_EQ(explained.code, 0) << explained.err;
  EXPECT_TRUE(contains(explained.out, "fit"));
}

TEST_F(PlanCli, TermByTermNeedsNoMachine) {
  const Outcome done = braid_run({"plan", config("gpt"), "--term-by-term"});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.out, "activation factor"));
  expect_complaint(braid_run({"plan", config("mlp"), "--term-by-term"}), Exit::config,
                   {"no gpt", "braid inspect"});
}

TEST_F(PlanCli, VerifiesOnTheDeviceThatIsHere) {
  const Words cpu = {"plan", config("gpt"), "--verify"};
  const Outcome done = braid_run(cpu);
  EXPECT_EQ(done.code, 0) << done.err << done.out;
  EXPECT_TRUE(contains(done.out, "rank 0 of 1 on cpu"));
  EXPECT_TRUE(contains(done.out, "exact"));
  EXPECT_TRUE(contains(done.out, "memory is as planned, within 5 %"));
}

TEST_F(PlanCli, VerifiesEveryRankOfALayout) {
  const Outcome done = braid_run({"plan", config("gpt"), "--verify", "--gpus", "2", "--json"});
  EXPECT_EQ(done.code, 0) << done.err << done.out;
  const nlohmann::json json = json_of(done);
  EXPECT_EQ(json["holds"], true);
  ASSERT_EQ(json["ranks"].size(), 2u);
  EXPECT_EQ(json["ranks"][1]["rank"], 1);
}

TEST_F(PlanCli, NothingFitsIsASentence) {
  const Outcome done = plan("gpt", {"--gpus", "1", "--memory", "90MiB"});
  expect_complaint(done, Exit::memory,
                   {"gpt on 1 x Lab GPU does not fit: the nearest, one GPU", "lacks",
                    "of 90.00 MiB", "the peak of a rank is", "fix: GPUs with"});
}

TEST_F(PlanCli, BadInput) {
  expect_complaint(braid_run({"plan", config("gpt")}), Exit::config,
                   {"no machine was named", "--cluster one of"});
  expect_complaint(braid_run({"plan", "--cluster", at("lab.yaml")}), Exit::config,
                   {"no config was given"});
  expect_complaint(braid_run({"plan", config("gpt"), "--cluster", "dgx_a10"}), Exit::config,
                   {"dgx_a10", "dgx_a100"});
  expect_complaint(plan("gpt", {"--gpus", "0"}), Exit::config, {"--gpus 0", "8 GPUs"});
  expect_complaint(plan("gpt", {"--gpus", "9"}), Exit::config,
                   {"--gpus 9", "lab has 8 GPUs: 2 nodes of 4"});
  expect_complaint(plan("gpt", {"--memory", "0"}), Exit::config, {"--memory 0", "Lab GPU has"});
  expect_complaint(plan("gpt", {"--memory", "2GiB"}), Exit::config, {"Lab GPU has 1.00 GiB"});
  expect_complaint(plan("gpt", {"--memory", "much"}), Exit::config, {"that is no size"});
  expect_complaint(plan("gpt", {"--global-batch", "0"}), Exit::config, {"at least one sample"});
  expect_complaint(plan("gpt", {"--precision", "fp7"}), Exit::config, {"fp7"});
  expect_complaint(plan("gpt", {"--as-is", "--gpus", "4", "--set", "mesh.tensor=3"}), Exit::config,
                   {"mesh"});
  expect_complaint(plan("gpt", {"--effect", "train.zerro=2"}), Exit::config, {"train.zero"});
}

TEST_F(PlanCli, BadClusters) {
  change_lab("latency: 5e-6, bandwidth: 10e9", "latency: 5e-6, bandwidth: 0");
  expect_complaint(plan("gpt", {"--gpus", "8"}), Exit::config,
                   {"between.bandwidth = 0 must be above 0"});
  change_lab("latency: 2e-6", "lattency: 2e-6");
  expect_complaint(plan("gpt", {"--gpus", "2"}), Exit::config,
                   {"unknown key inside.lattency", "did you mean inside.latency?"});
  change_lab("memory: 1 GiB", "memory: 0");
  expect_complaint(plan("gpt", {"--gpus", "2"}), Exit::config, {"memory"});
}

}  // namespace
}  // namespace braid::test
