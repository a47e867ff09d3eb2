// SPDX-License-Identifier: BSD-3-Clause
// Plans as people and programs read them.
#include "braid/plan/present.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/core/units.h"
#include "braid/train/expected.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::plan {
namespace {

using braid::test::contains;
constexpr int64_t gib = int64_t{1} << 30;

Request gpt_request() {
  Request request;
  request.options.run.spec = "gpt.yaml:small";
  request.options.model.name = nn::ModelName::gpt;
  request.options.train.steps = 10;
  request.options.train.global_batch = 64;
  request.options.train.loss = nn::Loss::cross_entropy;
  request.cluster.name = "lab";
  request.cluster.gpu.name = "Big GPU";
  request.cluster.gpu.memory = {80 * gib};
  request.cluster.gpus_per_node = 8;
  request.gpus = 8;
  return request;
}

RankPeak peak_of(const std::string& name, int64_t bytes) {
  RankPeak peak;
  peak.name = name;
  peak.bytes = bytes;
  peak.reserved = bytes + gib;
  peak.device = bytes + 2 * gib;
  peak.by_kind[static_cast<size_t>(MemoryKind::parameter)] = bytes / 4;
  peak.by_kind[static_cast<size_t>(MemoryKind::activation)] = bytes - bytes / 4;
  peak.moment = "step";
  peak.module = "blocks.3";
  return peak;
}

Plan fast_plan() {
  Plan plan;
  plan.choice.mesh.data = 4;
  plan.choice.mesh.shard = 1;
  plan.choice.mesh.pipeline = 2;
  plan.choice.micro_batch = 4;
  plan.choice.precision = "bf16";
  plan.options = gpt_request().options;
  plan.options.mesh = plan.choice.mesh;
  plan.fits = true;
  plan.peaks = {peak_of("first stage", 40 * gib), peak_of("last stage", 30 * gib)};
  plan.peak_bytes = 42 * gib;
  plan.time.seconds = 0.5;
  plan.time.parts = {.forward = 0.1, .backward = 0.25, .communication = 0.1, .bubble = 0.05};
  plan.time.samples_per_second = 128;
  plan.time.tokens_per_second = 131072;
  plan.time.model_utilisation = 0.41;
  plan.time.timeline = {{0, "compute", "aten::addmm", 0, 0.25},
                        {0, "compute", "aten::mul", 0.25, 0.250001},
                        {0, "compute", "aten::add", 0.250002, 0.250004},
                        {0, "comm data", "all-reduce", 0.3, 0.4},
                        {1, "compute", "</script><b>", 0.1, 0.5}};
  plan.reason = "the fastest that fits";
  return plan;
}

Plan misfit() {
  Plan plan = fast_plan();
  plan.choice.mesh = {.data = 8, .shard = 1};
  plan.choice.recompute = memory::Again::blocks;
  plan.choice.offload = {"optimizer"};
  plan.fits = false;
  plan.peaks = {peak_of("all", 81 * gib)};
  plan.peak_bytes = 83 * gib;
  plan.time = {};
  plan.reason = "does not fit by 3.0 GiB";
  return plan;
}

Found two_plans() {
  return {.plans = {fast_plan(), misfit()},
          .choices = 1234,
          .pruned = 1200,
          .dry_runs = 34,
          .seconds = 2.5,
          .notes = {"no expert axis: the model has no mixtures"}};
}

TEST(PresentTable, HasOneLineAPlanWithWhatDecided) {
  const std::string text = table_text(gpt_request(), two_plans());
  EXPECT_TRUE(contains(text, "gpt of gpt.yaml:small on 8 x Big GPU (lab), global batch 64"));
  EXPECT_TRUE(contains(text, "data 4 x pipeline 2"));
  EXPECT_TRUE(contains(text, "42.0 (52 %)"));
  EXPECT_TRUE(contains(text, "1f1b"));
  EXPECT_TRUE(contains(text, "131 k"));
  EXPECT_TRUE(contains(text, "tokens/s"));
  EXPECT_TRUE(contains(text, "41 %  the fastest that fits"));
  EXPECT_TRUE(contains(text, "blocks, offload optimizer"));
  EXPECT_TRUE(contains(text, "does not fit by 3.0 GiB"));
  EXPECT_TRUE(contains(text, "1,234 choices: 1,200 left out by a bound, 34 run dry"));
  EXPECT_TRUE(contains(text, "searched for 2.5 s"));
  EXPECT_TRUE(contains(text, "note: no expert axis"));
  EXPECT_TRUE(contains(table_text(gpt_request(), two_plans(), 1), "and 1 more (--top 2)"));
}

TEST(PresentPlan, TellsBytesByKindAndTimeByPart) {
  const std::string text = plan_text(gpt_request(), fast_plan());
  EXPECT_TRUE(
      contains(text, "first stage ranks: 42.00 GiB of 80.00 GiB on the device at the step"));
  EXPECT_TRUE(contains(text, "activation"));
  EXPECT_TRUE(contains(text, "gaps of the allocator"));
  EXPECT_TRUE(contains(text, "bubble"));
  EXPECT_TRUE(contains(text, "50 %"));  // of the step is the backward pass
}

TEST(PresentJson, HasTheFieldsThatProgramsRead) {
  const auto json = nlohmann::json::parse(found_json(gpt_request(), two_plans()));
  EXPECT_EQ(json["request"]["gpus"], 8);
  EXPECT_EQ(json["request"]["memory"], 80 * gib);
  EXPECT_EQ(json["cluster"]["name"], "lab");
  ASSERT_EQ(json["plans"].size(), 2u);
  const nlohmann::json& plan = json["plans"][0];
  EXPECT_EQ(plan["mesh"]["pipeline"], 2);
  EXPECT_EQ(plan["zero"], 0);
  EXPECT_EQ(plan["recompute"], "none");
  EXPECT_EQ(plan["micro_batch"], 4);
  EXPECT_EQ(plan["schedule"], "1f1b");
  EXPECT_EQ(plan["fits"], true);
  ASSERT_EQ(plan["peak_bytes"].size(), 2u);
  EXPECT_EQ(plan["peak_bytes"][0]["ranks"], "first stage");
  EXPECT_EQ(plan["peak_bytes"][0]["by_category"]["parameter"], 10 * gib);
  EXPECT_EQ(plan["peak_bytes"][0]["by_category"].size(), static_cast<size_t>(memory_kinds));
  EXPECT_EQ(plan["tokens_or_samples_per_s"], 131072);
  EXPECT_EQ(plan["per_s_of"], "tokens");
  double sum = 0;
  for (const auto& [name, seconds] : plan["parts"].items()) sum += seconds.get<double>();
  EXPECT_DOUBLE_EQ(sum, plan["step_seconds"].get<double>());
  EXPECT_EQ(json["plans"][1]["reason"], "does not fit by 3.0 GiB");
  Found winner = two_plans();
  winner.plans[0].reason.clear();
  winner.plans[0].choice.precision.clear();
  const auto told = nlohmann::json::parse(found_json(gpt_request(), winner));
  EXPECT_EQ(told["plans"][0]["reason"], "fastest");
  EXPECT_EQ(told["plans"][0]["precision"], "fp32");
  EXPECT_EQ(nlohmann::json::parse(found_json(gpt_request(), two_plans(), 1))["plans"].size(), 1u);
}

TEST(PresentPage, IsWholeAndCannotBeBrokenOutOf) {
  const std::string page = page_html(gpt_request(), two_plans());
  EXPECT_TRUE(contains(page, "braid: plan of gpt on 8 x Big GPU"));
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_EQ(page.find("</script><b>"), std::string::npos);
  const std::string mark = "id=\"data\">";
  const size_t from = page.find(mark) + mark.size();
  const auto data = nlohmann::json::parse(page.substr(from, page.find("</script>", from) - from));
  ASSERT_EQ(data["plans"].size(), 2u);
  EXPECT_EQ(data["plans"][0]["ranks"].size(), 2u);
  EXPECT_EQ(data["kinds"].size(), data["plans"][0]["ranks"][0]["parts"].size());
  EXPECT_EQ(data["parts"].size(), data["plans"][0]["parts"].size());
  // Two operators of a microsecond each are one on the screen.
  ASSERT_EQ(data["timeline"]["rows"].size(), 3u);
  EXPECT_EQ(data["timeline"]["rows"][0]["stream"], "compute");
  EXPECT_EQ(data["timeline"]["rows"][0]["spans"].size(), 2u);
  EXPECT_EQ(data["timeline"]["ms"], 500);
}

TEST(PresentFiles, TheConfigLoadsAsTheSameRun) {
  const braid::test::TempDir dir;
  const Plan plan = fast_plan();
  std::ofstream(dir / "best.yaml") << config_text(gpt_request(), plan);
  const train::RunOptions read = train::load_run((dir / "best.yaml").string());
  EXPECT_EQ(train::resolved_yaml(read), train::resolved_yaml(plan.options));
  EXPECT_EQ(read.mesh.pipeline, 2);
  std::ifstream in(dir / "best.yaml");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(contains(text, "--ranks 8"));
  EXPECT_TRUE(contains(text, "braid plan gpt.yaml:small --cluster lab --gpus 8"));
  EXPECT_TRUE(contains(text, "42.00 GiB of 80.00 GiB a GPU"));
}

TEST(PresentFiles, TheTrainerReadsWhatIsLeftForIt) {
  const braid::test::TempDir dir;
  std::ofstream(dir / "plan.json") << run_json(gpt_request(), fast_plan());
  const auto expected = train::read_expected(dir.path());
  ASSERT_TRUE(expected);
  EXPECT_EQ(expected->device, "cuda");
  EXPECT_EQ(expected->world, 8);
  EXPECT_EQ(expected->step_seconds, 0.5);
  ASSERT_EQ(expected->ranks.size(), 2u);
  EXPECT_EQ(expected->ranks[1].bytes, 30 * gib);
}

TEST(PresentMiss, SaysTheNearestAndWhatWouldHelp) {
  Found found = two_plans();
  found.plans = {misfit(), misfit()};
  found.plans[0].peak_bytes = 100 * gib;
  Request request = gpt_request();
  request.memory = 79 * gib;
  request.offload = false;
  const std::string text = explain(no_plan_fits(request, found).complaint());
  EXPECT_TRUE(contains(text, "gpt on 8 x Big GPU does not fit: the nearest, data 8"));
  EXPECT_TRUE(contains(text, "lacks 4.00 GiB of 79.00 GiB"));
  EXPECT_TRUE(contains(text, "the peak of a rank is 83.00 GiB at the step, 75 % of it activation"));
  EXPECT_TRUE(contains(text, "--memory 80 GiB"));
  EXPECT_TRUE(contains(text, "leave out --no-offload"));
  EXPECT_TRUE(contains(text, "more GPUs (--min-gpus says how many), or GPUs with 83.00 GiB"));
  found.notes.push_back("what would help: 16 GPUs with ZeRO-3");
  EXPECT_TRUE(contains(explain(no_plan_fits(request, found).complaint()),
                       "fix: 16 GPUs with ZeRO-3; the GPU has"));
  found.plans.clear();
  EXPECT_TRUE(contains(explain(no_plan_fits(request, found).complaint()),
                       "none of 1,234 choices fits into 79.00 GiB"));
}

TEST(PresentChoice, OfAConfigAsItStands) {
  train::RunOptions options = gpt_request().options;
  options.mesh.tensor = 2;
  options.train.zero = 1;
  Choice choice = choice_of(options, 8);
  EXPECT_EQ(*choice.mesh.data * *choice.mesh.shard, 4);
  EXPECT_EQ(choice.micro_batch, 16);
  options.train.micro_batch = 4;
  EXPECT_EQ(choice_of(options, 8).micro_batch, 4);
  options.mesh.tensor = 3;
  EXPECT_TRUE(contains(braid::test::error_of([&] { choice_of(options, 8); }), "8"));
}

TEST(PresentScaling, NamesThePointBelow75Percent) {
  Scaling curve;
  for (const int64_t gpus : {1, 2, 4}) {
    Plan plan = fast_plan();
    const double efficiency = gpus == 4 ? 0.7 : 1;
    curve.strong.push_back(
        {gpus, 100.0 * static_cast<double>(gpus) * efficiency, efficiency, plan});
  }
  curve.strong_below = 4;
  curve.weak = curve.strong;
  const std::string text = scaling_text(gpt_request(), curve);
  EXPECT_TRUE(contains(text, "efficiency falls below 75 % at 4 GPUs"));
  EXPECT_TRUE(contains(text, "efficiency stays at 75 % or above"));
  const auto json = nlohmann::json::parse(scaling_json(gpt_request(), curve));
  EXPECT_EQ(json["scaling"]["strong"][2]["efficiency"], 0.7);
  EXPECT_EQ(json["scaling"]["strong_below_75"], 4);
}

}  // namespace
}  // namespace braid::plan
