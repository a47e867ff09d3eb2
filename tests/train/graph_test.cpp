// SPDX-License-Identifier: BSD-3-Clause
// What forbids the step as a CUDA graph, and which steps are replayed; tests/cuda/graph_test.cpp
// has the graphs themselves.
#include "train/graph.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "braid/core/accelerator.h"
#include "support/expect.h"
#include "train/run.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;

const c10::Device gpu(c10::kCUDA, 0);

TEST(Graph, EachRefusalIsASentence) {
  const auto refusal = [](const std::string& yaml, const std::vector<std::string>& sets) {
    return graph_refusal(run_of(yaml, sets), gpu, {});
  };
  EXPECT_EQ(refusal(mlp_run, {}), "") << "dropout reads the step on the device";
  EXPECT_EQ(refusal(gpt_run, {"train.micro_batch=2", "train.clip=1", "train.ema=0.9"}), "");
  EXPECT_TRUE(contains(graph_refusal(run_of(gpt_run), c10::kCPU, {}), "on the CPU"));
  EXPECT_TRUE(contains(refusal(gpt_run, {"memory.offload=[optimizer]"}), "memory.offload"));
  EXPECT_TRUE(contains(refusal(gpt_run, {"memory.stash=bf16"}), "memory.stash"));
  EXPECT_TRUE(contains(refusal(gpt_run, {"memory.limit=1 GiB"}), "memory.limit"));
  EXPECT_TRUE(contains(refusal(gpt_run, {"model.kernels=reference"}), "model.kernels"));
  EXPECT_TRUE(contains(refusal(gpt_run, {"model.moe.experts=4"}), "mixtures"));
  const Ranks two = dry_ranks(parallel::Mesh({.data = 2}, 2, 0, 0));
  EXPECT_TRUE(contains(graph_refusal(run_of(gpt_run), gpu, two), "2 ranks"));
}

TEST(Graph, OnWhereItCannotBeIsAnError) {
  const std::string error =
      error_of([] { const TestRun run(run_of(mlp_run, {"train.graph=on"})); });
  EXPECT_TRUE(contains(error, "train.graph = on"));
  EXPECT_TRUE(contains(error, "on the CPU"));
  EXPECT_TRUE(contains(error, "train.graph=auto"));
}

// A capture that only says what it is asked for.
struct Remembered final : Captured {
  explicit Remembered(std::string* told) : say(told) {}
  void replay() override { *say += "r"; }
  std::string* say;
};

struct ToyPool final : CapturePool {
  explicit ToyPool(std::string* told) : say(told) {}
  void run(const std::function<void()>& work) override {
    *say += "e";
    work();
  }
  std::unique_ptr<Captured> capture(const std::function<void()>& work) override {
    *say += "c";
    TORCH_CHECK(!fails, "operation not permitted when stream is capturing");
    work();
    return std::make_unique<Remembered>(say);
  }
  std::string* say;
  bool fails = false;
};

data::Batch batch_of(int64_t samples, bool fixed) {
  data::Batch batch;
  batch.input = at::full({samples, 2}, 1.0);
  batch.target = at::full({samples}, 2.0);
  batch.samples = samples;
  batch.weights.assign(static_cast<size_t>(samples), 1);
  batch.fixed = fixed;
  return batch;
}

StepResult toy_result() {
  StepResult result;
  result.loss = at::full({}, 1.5, c10::kFloat);
  result.grad_norm = at::full({}, 2.5, c10::kFloat);
  return result;
}

struct Toy {
  explicit Toy(bool fails = false) {
    auto made = std::make_unique<ToyPool>(&told);
    made->fails = fails;
    graph = std::make_unique<StepGraph>(std::move(made), c10::kCPU,
                                        [](const data::Batch&, const nn::Pass&,
                                           const optim::LearningRate&) { return toy_result(); });
  }
  // What happened: e, without a graph; c, captured; r, replayed.
  std::string step(const data::Batch& batch, GraphStep how = {.lr = 0.1, .shares = {1}}) {
    told.clear();
    graph->run(batch, {.training = true}, how);
    return told;
  }
  // One after the other.
  std::string steps(const std::vector<data::Batch>& batches) {
    std::string all;
    for (const data::Batch& batch : batches) all += step(batch);
    return all;
  }
  std::string told;
  std::unique_ptr<StepGraph> graph;
};

TEST(Graph, FirstStepsOfAShapeRunAsTheyAre) {
  Toy toy(/*fails=*/true);
  const data::Batch one = batch_of(4, true);
  EXPECT_EQ(toy.step(one), "e");
  EXPECT_EQ(toy.step(one), "e");
  EXPECT_EQ(toy.step(one), "ce") << "a failed capture is told, and the step made without it";
  EXPECT_TRUE(contains(toy.graph->failure(), "not permitted"));
  EXPECT_EQ(toy.step(one), "e");
}

TEST(Graph, BuffersOfTheLoaderHaveAGraphEach) {
  Toy toy;
  const data::Batch one = batch_of(4, true), other = batch_of(4, true);
  EXPECT_EQ(toy.steps({one, other}), "ee");
  EXPECT_EQ(toy.step(one), "cr");
  EXPECT_EQ(toy.step(other), "cr");
  EXPECT_EQ(toy.steps({one, other}), "rr");
  EXPECT_EQ(toy.graph->replays(), 4);
  const data::Batch third = batch_of(4, true), fourth = batch_of(4, true);
  EXPECT_EQ(toy.steps({third, fourth}), "crr") << "copied: one graph for all others";
  EXPECT_EQ(toy.steps({one, other, third}), "rrr");
}

TEST(Graph, OtherBatchesAreCopiedToWhereTheGraphReads) {
  Toy toy;
  EXPECT_EQ(toy.steps({batch_of(4, false), batch_of(4, false)}), "ee");
  EXPECT_EQ(toy.step(batch_of(4, false)), "cr");
  EXPECT_EQ(toy.steps({batch_of(4, false), batch_of(4, false)}), "rr");
}

TEST(Graph, AnotherShapeHasAGraphOfItsOwn) {
  Toy toy;
  for (int64_t samples = 1; samples <= 4; ++samples) {
    const data::Batch batch = batch_of(samples, false);
    EXPECT_EQ(toy.steps({batch, batch, batch}), "eecr");
  }
  const data::Batch fifth = batch_of(5, false);
  EXPECT_EQ(toy.steps({fifth, fifth, fifth}), "eee") << "four are kept";
  EXPECT_EQ(toy.step(batch_of(2, false)), "r");
  toy.graph->forget();
  EXPECT_EQ(toy.step(batch_of(2, false)), "e");
}

TEST(Graph, SharesOfTheLossArePartOfIt) {
  Toy toy;
  const data::Batch batch = batch_of(4, true);
  for (int i = 0; i < 3; ++i) toy.step(batch, {.lr = 0.1, .shares = {0.5, 0.5}});
  EXPECT_EQ(toy.step(batch, {.lr = 0.2, .shares = {0.5, 0.5}}), "r");
  EXPECT_EQ(toy.step(batch, {.lr = 0.2, .shares = {0.25, 0.75}}), "e");
  EXPECT_EQ(toy.step(batch, {.lr = 0.2, .shares = {0.5, 0.5}, .eager = true}), "e");
}

TEST(Graph, ResultsAreCopiedOut) {
  Toy toy;
  const data::Batch batch = batch_of(4, true);
  for (int i = 0; i < 4; ++i) {
    const StepResult result = toy.graph->run(batch, {.training = true}, {.lr = 0.1, .shares = {1}});
    EXPECT_EQ(result.loss.item<double>(), 1.5);
    EXPECT_EQ(result.grad_norm.item<double>(), 2.5);
    EXPECT_FALSE(result.scale.defined());
    if (i > 1) EXPECT_EQ(result.weight, 4);
  }
}

}  // namespace
}  // namespace braid::train
