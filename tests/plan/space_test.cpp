// SPDX-License-Identifier: BSD-3-Clause
// What a search stands on: the choices, the bounds, the dry runs that are cut short.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "plan/search_climb.h"
#include "plan/search_evaluate.h"
#include "plan/small.h"
#include "plan/space_bound.h"
#include "plan/space_run.h"

namespace braid::plan {
namespace {

using braid::test::contains;
using braid::test::error_of;
using test::request_of;

bool any(const std::vector<Choice>& all, const std::function<bool(const Choice&)>& is) {
  return std::any_of(all.begin(), all.end(), is);
}

TEST(Choices, HaveEveryAxisThatTheModelGoesWith) {
  const std::vector<Choice> all = choices_of(request_of(test::small_gpt, 4));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.mesh.tensor == 4; }));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.mesh.context == 2 && c.mesh.tensor == 2; }));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.mesh.pipeline == 4; }));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.zero == 2 && *c.mesh.shard == 2; }));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.recompute == memory::Again::attention; }));
  EXPECT_TRUE(any(all, [](const Choice& c) { return c.offload.size() == 3; }));
  EXPECT_FALSE(any(all, [](const Choice& c) { return c.mesh.expert > 1; }));
  std::set<std::string> words;
  for (const Choice& choice : all) {
    EXPECT_TRUE(words.insert(to_text(choice)).second) << to_text(choice) << " twice";
    const int64_t ranks = *choice.mesh.data * *choice.mesh.shard;
    EXPECT_EQ(ranks * choice.mesh.tensor * choice.mesh.context * choice.mesh.pipeline, 4);
    EXPECT_EQ(16 % (ranks * choice.micro_batch), 0) << "the global batch is kept";
  }
  const std::vector<Choice> mlp = choices_of(request_of(test::small_mlp, 2));
  EXPECT_FALSE(any(mlp, [](const Choice& c) { return c.mesh.tensor * c.mesh.context > 1; }));
  EXPECT_TRUE(any(mlp, [](const Choice& c) { return c.mesh.pipeline == 2; }));
}

TEST(Choices, RefuseWhatCannotBe) {
  EXPECT_TRUE(contains(error_of([] { choices_of(request_of(test::small_gpt, 65)); }),
                       "65 GPUs asked for, small has 64 (16 nodes of 4)"));
  EXPECT_TRUE(contains(error_of([] { choices_of(request_of(test::small_gpt, 0)); }), "--gpus 1"));
  const std::string batch = error_of([] { choices_of(request_of(test::small_mlp, 64)); });
  EXPECT_TRUE(contains(batch, "no mesh of 64 GPUs takes a global batch of 12"));
  EXPECT_TRUE(contains(batch, "--global-batch 64"));
}

// Steps that are cut short and put together again are the whole ones.
TEST(QuickLayout, IsTheWholeStep) {
  for (const std::string& yaml : {test::small_gpt, test::small_vit})
    for (const int64_t zero : {0, 1, 2, 3}) {
      const train::RunOptions options = test::options_of(
          yaml, {"train.zero=" + std::to_string(zero), "train.micro_batch=1",
                 "train.global_batch=12", "mesh.data=" + std::string(zero == 0 ? "2" : "1"),
                 "mesh.shard=" + std::string(zero == 0 ? "1" : "2"), "train.clip=1"});
      const LayoutRun whole = dry_layout(options, 2), quick = quick_layout(options, 2, {});
      const RankRun &a = whole.ranks.at(0), &b = quick.ranks.at(0);
      SCOPED_TRACE(zero);
      EXPECT_EQ(whole.samples, quick.samples);
      EXPECT_NEAR(whole.flops, quick.flops, 1e-9 * whole.flops);
      EXPECT_EQ(a.memory.peak.bytes, b.memory.peak.bytes);
      EXPECT_GE(b.memory.device(), a.memory.device());  // the input may lie in a gap
      EXPECT_LE(b.memory.device() - a.memory.device(), 1 << 20);
      ASSERT_EQ(a.trace.operators.size(), b.trace.operators.size());
      for (size_t i = 0; i < a.trace.operators.size(); ++i)
        ASSERT_EQ(a.trace.operators[i].name, b.trace.operators[i].name) << i;
      ASSERT_EQ(a.trace.messages.size(), b.trace.messages.size());
      for (size_t i = 0; i < a.trace.messages.size(); ++i) {
        EXPECT_EQ(a.trace.messages[i].from, b.trace.messages[i].from) << i;
        EXPECT_EQ(a.trace.messages[i].until, b.trace.messages[i].until) << i;
        EXPECT_EQ(a.trace.messages[i].bytes, b.trace.messages[i].bytes) << i;
      }
      std::vector<RegionMark> regions = a.trace.regions;
      std::erase_if(regions, [](const RegionMark& r) { return r.name == "communication"; });
      ASSERT_EQ(regions.size(), b.trace.regions.size());
      for (size_t i = 0; i < regions.size(); ++i) {
        EXPECT_EQ(regions[i].micro, b.trace.regions[i].micro) << i;
        EXPECT_EQ(regions[i].from, b.trace.regions[i].from) << i;
      }
      const CostModel costs(test::small_cluster());
      EXPECT_NEAR(simulate(whole, costs).seconds, simulate(quick, costs).seconds, 1e-12);
    }
}

// From any start any choice is some steps away, and no step leaves the mathematics.
TEST(Neighbours, LeadEverywhere) {
  for (const auto& [yaml, gpus] : {std::pair(test::small_gpt, 6), {test::small_vit, 4}}) {
    const Request request = request_of(yaml, gpus, {"train.global_batch=12"});
    const Base base = base_of(request);
    std::map<std::string, Choice> left;
    for (const Choice& choice : choices_of(request)) left.emplace(to_text(choice), choice);
    std::vector<Choice> open;
    for (const Choice& start : starts_of(request, base))
      if (left.contains(to_text(start))) open = {start};
    ASSERT_FALSE(open.empty());
    left.erase(to_text(open.front()));
    while (!open.empty()) {
      const Choice here = open.back();
      open.pop_back();
      for (const Choice& near : neighbours_of(here, request, base)) {
        EXPECT_EQ(*near.mesh.data * *near.mesh.shard * near.mesh.tensor * near.mesh.context *
                      near.mesh.pipeline * near.mesh.expert,
                  gpus);
        if (left.erase(to_text(near)) > 0) open.push_back(near);
      }
    }
    EXPECT_EQ(left.size(), 0U) << left.begin()->first;
  }
}

// Whatever is drawn from the space: no bound is below what the whole dry run comes to.
TEST(Bounds, AreSound) {
  std::mt19937_64 random(7);
  for (const std::string& yaml : {test::small_gpt, test::small_vit}) {
    const Request request = request_of(yaml, 4);
    const Base base = base_of(request);
    const std::vector<Choice> all = choices_of(request);
    Bounds bounds(request, base);
    Evaluator evaluator(request, base);
    for (int i = 0; i < 30; ++i) {
      const Choice& choice = all[random() % all.size()];
      SCOPED_TRACE(to_text(choice));
      const Plan plan = evaluator.plan(choice);
      EXPECT_LE(bounds.memory(choice), plan.peak_bytes);
      int64_t host = 0;
      for (const RankPeak& peak : plan.peaks) host = std::max(host, peak.host);
      EXPECT_LE(bounds.host(choice), host);
      for (const auto level :
           {Bounds::Level::kernels, Bounds::Level::messages, Bounds::Level::exact})
        EXPECT_GE(bounds.throughput(choice, level), plan.time.samples_per_second)
            << "level " << static_cast<int>(level);
    }
  }
}

}  // namespace
}  // namespace braid::plan
