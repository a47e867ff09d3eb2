// SPDX-License-Identifier: BSD-3-Clause
// The guide: which branch a model, a GPU and a number of them come to.
#include "braid/plan/explain.h"

#include <gtest/gtest.h>

#include "plan/small.h"

namespace braid::plan {
namespace {

using braid::test::contains;
using test::request_of;

// Wide weights, small samples: states are what does not fit.
const std::string wide = R"(
seed: 3
model: {name: gpt, vocabulary: 512, sequence: 64, layers: 4, heads: 8, width: 512}
data: {kind: synthetic, input_shape: [64], target_shape: [64], classes: 512, samples: 64, workers: 0, sequence: 64}
train: {steps: 100, global_batch: 16, micro_batch: 1, loss: cross_entropy, device: cpu}
optimizer: {name: adamw, lr: 1e-3}
report: {to: []}
)";
// Attention over windows keeps its scores, as the reference does it.
const std::string windows = R"(
seed: 3
model: {name: swinir, image: [64, 64], scale: 2, width: 32, depths: [2, 2], heads: [2, 2], window: 8, kernels: reference}
data: {kind: synthetic, input_shape: [3, 64, 64], target_shape: [3, 128, 128], samples: 8, workers: 0}
train: {steps: 2, global_batch: 4, micro_batch: 1, loss: l1, device: cpu}
optimizer: {name: adamw, lr: 1e-3}
report: {to: []}
)";
// Long samples, narrow weights: activations are.
const std::string deep = R"(
seed: 3
model: {name: gpt, vocabulary: 256, sequence: 1024, layers: 4, heads: 8, width: 128}
data: {kind: synthetic, input_shape: [1024], target_shape: [1024], classes: 256, samples: 64, workers: 0, sequence: 1024}
train: {steps: 100, global_batch: 16, micro_batch: 1, loss: cross_entropy, device: cpu}
optimizer: {name: adamw, lr: 1e-3}
report: {to: []}
)";

struct Case {
  const std::string& yaml;
  int64_t gpus = 1;
  int64_t mebibytes = 0;  // of a GPU
  const char* branch;     // in the question that is answered with yes; empty: nothing fits
  std::vector<std::string> sets = {};
};

std::string taken(const std::vector<Advice>& advice) {
  for (const Advice& step : advice)
    if (step.taken) return step.question;
  return "";
}

TEST(Explain, TakesTheFirstBranchThatFits) {
  const std::vector<Case> cases = {
      {wide, 1, 215, "one replica"},
      {wide, 1, 208, "whole blocks"},
      {wide, 1, 120, "offload"},
      {wide, 1, 60, ""},
      {windows, 1, 68, "attention computed again"},
      {deep, 1, 43, "whole blocks"},
      {wide, 4, 500, "one replica"},
      {wide, 4, 310, "ZeRO-1"},
      {wide, 4, 295, "whole blocks"},
      {wide, 4, 280, "ZeRO-3"},
      {wide, 4, 230, "tensor"},
      {wide, 4, 250, "pipeline", {"model.heads=1"}},
      {wide, 4, 236, "offload", {"model.heads=1"}},
      {wide, 16, 270, "ZeRO-2"},
  };
  for (const Case& each : cases) {
    Request request = request_of(each.yaml, each.gpus, each.sets);
    request.memory = each.mebibytes << 20;
    const std::vector<Advice> advice = explain(request);
    const std::string question = taken(advice);
    EXPECT_EQ(question.empty(), std::string(each.branch).empty()) << to_text(advice);
    EXPECT_TRUE(contains(question, each.branch)) << to_text(advice);
  }
}

TEST(Explain, SaysWhatToTypeAndHowFastItIs) {
  Request request = request_of(wide, 4);
  request.memory = int64_t{310} << 20;
  const std::string text = to_text(explain(request));
  EXPECT_TRUE(contains(text, "1. Does one replica fit on one GPU?\n   No: "));
  EXPECT_TRUE(contains(text, " of 310.00 MiB (by "));
  EXPECT_TRUE(
      contains(text, "take: --set mesh.shard=4 --set train.zero=1 --set train.micro_batch=1\n"));
  EXPECT_TRUE(contains(text, "How fast is that?"));
  EXPECT_TRUE(contains(text, "% computing"));
  EXPECT_TRUE(contains(text, "try: --set train.precision=bf16"));
}

// The micro-batch is free where the config does not say it, and the fastest that fits is taken.
TEST(Explain, ChoosesTheMicroBatchAndLooksAtScaling) {
  Request request = request_of(test::small_gpt, 4);
  const std::vector<Advice> advice = explain(request);
  ASSERT_TRUE(advice.front().taken);
  EXPECT_EQ(advice.front().sets,
            (std::vector<std::string>{"--set mesh.data=4", "--set train.micro_batch=4"}));
  EXPECT_TRUE(contains(to_text(advice), "Does plain data parallelism scale?"));
}

TEST(Explain, SaysWhatWouldHelpWhereNothingFits) {
  Request request = request_of(wide, 1);
  request.memory = int64_t{60} << 20;
  EXPECT_TRUE(contains(explain(request).back().answer, "what would help: GPUs with "));
}

}  // namespace
}  // namespace braid::plan
