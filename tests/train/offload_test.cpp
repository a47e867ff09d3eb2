// SPDX-License-Identifier: BSD-3-Clause
// Optimizer and weights on the host: the same run, to the last bit, also across a stop.
#include <gtest/gtest.h>

#include <ATen/ops/zeros.h>

#include "braid/memory/instruments.h"
#include "braid/train/measure.h"
#include "support/dry_real.h"
#include "support/small_runs.h"
#include "train/run.h"
#include "train/step_parts.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;
using Weights = std::map<std::string, at::Tensor>;

const std::vector<std::string> on_host = {"memory.offload=[optimizer]"};

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

struct Finished {
  Weights weights;
  std::vector<StepRecord> steps;
};

Finished finished(const std::string& yaml, const std::vector<std::string>& sets) {
  const test::TempDir dir;
  TestRun run(run_of(yaml, with(sets, {"run.dir=" + (dir / "run").string()})));
  run.trainer.fit();
  return {run.weights(), run.sink.steps};
}

void expect_same_run(const std::string& yaml, const std::vector<std::string>& sets) {
  const Finished plain = finished(yaml, sets), offloaded = finished(yaml, with(sets, on_host));
  expect_same_bits(plain.weights, offloaded.weights);
  ASSERT_EQ(plain.steps.size(), offloaded.steps.size());
  for (size_t i = 0; i < plain.steps.size(); ++i) {
    EXPECT_EQ(plain.steps[i].loss, offloaded.steps[i].loss) << i;
    EXPECT_EQ(plain.steps[i].grad_norm, offloaded.steps[i].grad_norm) << i;
    EXPECT_EQ(plain.steps[i].skipped, offloaded.steps[i].skipped) << i;
  }
}

class OffloadPrecision : public testing::TestWithParam<const char*> {};
constexpr const char* dtypes[] = {"fp64", "fp32", "bf16", "bf16_masters", "bf16_params", "fp16"};
INSTANTIATE_TEST_SUITE_P(All, OffloadPrecision, testing::ValuesIn(dtypes));

TEST_P(OffloadPrecision, TrainsTheSameBits) {
  const std::string precision = std::string("train.precision=") + GetParam();
  for (const std::string& yaml : {mlp_run, gpt_run})
    expect_same_run(yaml, {precision, "train.steps=5", "train.clip=0.5"});
  expect_same_run(vit_run, {precision, "train.steps=5", "train.micro_batch=2"});
}

TEST(Offload, MastersOfNarrowWeightsTrainTheSameBits) {
  for (const std::string optimizer :
       {"optimizer.name=adam", "optimizer.name=adamw", "optimizer.name=sgd"})
    expect_same_run(gpt_run, {"train.param=bf16", "train.steps=5", optimizer, "train.ema=0.5",
                              "train.micro_batch=2"});
}

TEST(Offload, ADroppedStepIsDropped) {
  const std::vector<std::string> fp16 = {"train.precision=fp16", "train.steps=5",
                                         "optimizer.scaler.initial=1e30"};
  EXPECT_TRUE(finished(mlp_run, with(fp16, on_host)).steps.front().skipped);
  expect_same_run(mlp_run, fp16);
  expect_same_run(mlp_run, with(fp16, {"train.clip=0.5"}));
}

// One rank alone whose blocks visit the device one by one. Weights lie side by side then, so that
// matrix products may round differently; the update does not.
TEST(Offload, WeightsOnTheHostTrainTheSame) {
  const auto weights = [](const std::vector<std::string>& sets) {
    const test::TempDir dir;
    TestRun run(run_of(
        gpt_run,
        with(sets, {"train.precision=fp64", "train.steps=5", "train.clip=0.5", "train.ema=0.5",
                    "train.micro_batch=2", "run.dir=" + (dir / "run").string()})));
    run.trainer.fit();
    return run.trainer.state().tensors;
  };
  const auto plain = weights({});
  const auto alone = weights({"train.zero=3", "memory.offload=[parameters]"});
  const auto both = weights({"train.zero=3", "memory.offload=[parameters,optimizer]"});
  ASSERT_EQ(plain.size(), alone.size());
  for (const auto& [name, tensor] : plain) {
    EXPECT_TRUE(alone.at(name).equal(both.at(name))) << name;
    EXPECT_TRUE(alone.at(name).flatten().allclose(tensor.flatten(), 1e-11, 1e-14)) << name;
  }
}

// Stops after step 3 with one set of options, goes on with another.
Weights resumed(const std::vector<std::string>& first, const std::vector<std::string>& second,
                const std::string& yaml = gpt_run) {
  const test::TempDir dir;
  const std::string place = "run.dir=" + (dir / "run").string();
  TestRun begun(run_of(yaml, with(first, {place, "train.steps=3", "optimizer.schedule=constant"})));
  begun.trainer.fit();
  TestRun rest(run_of(yaml, with(second, {place, "train.steps=6", "optimizer.schedule=constant"})));
  EXPECT_TRUE(rest.trainer.resume());
  rest.trainer.fit();
  return rest.weights();
}

TEST(Offload, CheckpointsMoveToTheHostAndBack) {
  for (const std::string dtype : {"train.param=bf16", "train.param=fp32"})
    for (const std::string optimizer : {"optimizer.name=adam", "optimizer.name=sgd"}) {
      const std::vector<std::string> plain = {dtype, optimizer, "train.ema=0.9"};
      const std::vector<std::string> host = with(plain, on_host);
      const Weights expected = resumed(plain, plain);
      expect_same_bits(resumed(host, host), expected);
      expect_same_bits(resumed(host, plain), expected);
      expect_same_bits(resumed(plain, host), expected);
    }
}

TEST(Offload, TheSavedStateHasTheSameNamesAndTypes) {
  for (const std::string dtype : {"train.param=bf16", "train.param=fp32"}) {
    const std::vector<std::string> sets = {dtype, "train.steps=2"};
    const test::TempDir dir;
    TestRun plain(run_of(gpt_run, with(sets, {"run.dir=" + (dir / "plain").string()})));
    TestRun host(
        run_of(gpt_run, with(with(sets, on_host), {"run.dir=" + (dir / "host").string()})));
    plain.trainer.fit();
    host.trainer.fit();
    const State a = plain.trainer.state(), b = host.trainer.state();
    ASSERT_EQ(a.tensors.size(), b.tensors.size());
    for (const auto& [name, tensor] : a.tensors) {
      EXPECT_EQ(tensor.scalar_type(), b.tensor(name).scalar_type()) << name;
      EXPECT_TRUE(tensor.equal(b.tensor(name))) << name;
    }
  }
}

// The same mathematics one after the other: gradients by Step, kept until the next step is over.
Weights simulated(const RunOptions& options, int64_t delay) {
  const Splits splits = open_splits(options);
  const std::unique_ptr<nn::Model> model = build_model(options);
  RunOptions plain = options;
  plain.memory = {};
  StepParts parts(*model, plain, c10::kCPU);
  data::Loader loader(splits.train, {.global_batch = *options.train.global_batch,
                                     .shuffle = true,
                                     .workers = 0,
                                     .seed = static_cast<uint64_t>(options.seed)});
  std::vector<at::Tensor> waiting;
  const auto update = [&](const std::vector<at::Tensor>& grads) {
    for (size_t i = 0; i < grads.size(); ++i) parts.params[i].tensor.mutable_grad() = grads[i];
    parts.optimizer.step(options.optimizer.rule.lr);
    parts.optimizer.zero_grad();
  };
  for (int64_t step = 0; step < options.train.steps;) {
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) continue;
    const nn::Pass pass{
        .training = true, .seed = static_cast<uint64_t>(options.seed), .step = step};
    parts.step.gradients(*batch, pass);
    if (options.train.clip > 0) optim::clip_grad_norm(parts.params, options.train.clip);
    std::vector<at::Tensor> grads;
    for (const Param& param : parts.params) grads.push_back(param.tensor.grad());
    parts.optimizer.zero_grad();
    if (step < delay) update(grads);
    if (step > delay) update(waiting);
    waiting = grads;
    ++step;
  }
  Weights weights;
  for (const Param& param : model->params()) weights[param.name] = param.tensor.detach().clone();
  return weights;
}

TEST(Offload, LateUpdatesAreThoseOfASimulator) {
  for (const std::string precision : {"train.precision=fp32", "train.precision=fp64"})
    for (const std::string optimizer : {"optimizer.name=adam", "optimizer.name=sgd"}) {
      const std::vector<std::string> sets = {precision,
                                             optimizer,
                                             "train.steps=7",
                                             "train.clip=0.5",
                                             "memory.delay=2",
                                             "memory.offload=[optimizer]",
                                             "optimizer.schedule=constant"};
      const RunOptions options = run_of(mlp_run, sets);
      expect_same_bits(finished(mlp_run, sets).weights, simulated(options, 2));
    }
}

TEST(Offload, ALateUpdateSurvivesAStop) {
  for (const std::string dtype :
       {"train.param=bf16", "train.precision=fp32", "train.precision=fp16"}) {
    const std::vector<std::string> late = {dtype, "memory.offload=[optimizer]", "memory.delay=1",
                                           "optimizer.schedule=constant", "train.ema=0.9"};
    const Weights whole = finished(gpt_run, with(late, {"train.steps=6"})).weights;
    expect_same_bits(resumed(late, late), whole);
  }
}

// A run without a delay applies what waits before its first step; one without a host refuses it.
TEST(Offload, ALateUpdateIsAppliedOrRefusedElsewhere) {
  const std::vector<std::string> late = {"memory.offload=[optimizer]", "memory.delay=1"};
  const test::TempDir dir;
  const std::string place = "run.dir=" + (dir / "run").string();
  TestRun begun(run_of(mlp_run, with(late, {place, "train.steps=3"})));
  begun.trainer.fit();
  EXPECT_TRUE(begun.trainer.state().has("optimizer/delayed_lr"));
  TestRun plain(run_of(mlp_run, {place, "train.steps=6"}));
  const std::string text = error_of([&] { plain.trainer.resume(); });
  EXPECT_TRUE(contains(text, "a gradient that waits for its update"));
  EXPECT_TRUE(contains(text, "--set memory.offload=[optimizer]"));
  TestRun now(run_of(mlp_run, with(on_host, {place, "train.steps=6"})));
  ASSERT_TRUE(now.trainer.resume());
  const Weights before = now.weights();
  now.trainer.fit();
  EXPECT_FALSE(now.trainer.state().has("optimizer/delayed_lr"));
  for (const auto& [name, tensor] : now.weights()) EXPECT_FALSE(tensor.equal(before.at(name)));
}

// Adam of narrow weights on a GPU that is not there, term by term.
TEST(Offload, TheHostHasFourteenBytesAWeight) {
  RunOptions run = test::small_run(nn::ModelName::gpt);
  run.train.param = "bf16";
  run.memory.offload = {"optimizer"};
  memory::Ledger ledger;
  int64_t weights = 0, tensors = 0, largest = 0;
  const c10::Device gpu(c10::kCUDA, 0);
  {
    const memory::Instruments on({.ledger = &ledger, .dry = true});
    const auto model =
        nn::make_model(run.model, {.precision = policy_of(run.train), .device = gpu});
    for (const Param& param : model->params()) {
      weights += param.tensor.numel();
      largest = std::max(largest, param.tensor.numel());
      ++tensors;
    }
    const int64_t other = ledger.live(memory::cuda()) - 2 * weights;  // buffers of the model
    StepParts parts(*model, run, gpu);
    const int64_t rest = ledger.live(memory::cpu) - 4 * weights;  // buffers of messages
    const data::Batch batch = empty_batch(run, 4, gpu);
    const int64_t inputs = ledger.live(memory::cuda()) - 2 * weights - other;
    for (int step = 0; step < 2; ++step)
      parts.run(batch, {.training = true, .seed = 1, .step = step}, 1e-3);
    EXPECT_EQ(ledger.live(memory::cuda()), 2 * weights + other + inputs);
    const int64_t steps = 4 * tensors;  // Adam counts the steps of each parameter
    EXPECT_EQ(ledger.live(memory::cpu), 4 * weights + 4 * weights + 4 * weights + steps + rest);
    EXPECT_EQ(ledger.live(memory::pinned_host), 2 * weights + 2 * (2 * largest));
    EXPECT_EQ(parts.host->traffic().to_host, 2 * 2 * weights);
    EXPECT_EQ(parts.host->traffic().to_device, 2 * 2 * weights);
  }
}

// However large the model: casts of gradients take one tile.
TEST(Offload, CastsTakeATileForSgdAndNothingForAdam) {
  constexpr int64_t tile = int64_t{16} << 20;
  const auto taken = [](optim::Algorithm rule) {
    memory::Ledger ledger;
    const memory::Instruments on({.ledger = &ledger, .dry = true});
    const at::Tensor weight = at::zeros({10 * tile}, c10::kFloat);
    optim::Optimizer optimizer({{"weight", weight}}, {.name = rule});
    weight.mutable_grad() = at::zeros({10 * tile}, c10::kBFloat16);
    optimizer.step(1e-3);
    ledger.begin();
    const int64_t before = ledger.live(memory::cpu);
    optimizer.step(1e-3);
    return ledger.highest(memory::cpu) - before;
  };
  EXPECT_EQ(taken(optim::Algorithm::sgd) + taken(optim::Algorithm::adamw), 4 * tile);
}

TEST(Offload, ADryStepTakesTheMemoryOfARealOne) {
  for (const char* words : {"optimizer", "parameters", "parameters_optimizer"})
    for (const bool narrow : {false, true}) {
      SCOPED_TRACE(testing::Message() << words << narrow);
      RunOptions run = test::small_run(nn::ModelName::gpt);
      run.memory = test::memory_words(words);
      run.train.micro_batch = 2;
      run.train.zero = run.memory.offloads("parameters") ? 3 : 0;
      if (narrow) run.train.param = "bf16";
      test::expect_dry_is_real(run);
    }
}

TEST(Offload, WhatDoesNotGoTogetherIsRefused) {
  std::string text = error_of([] { run_of(mlp_run, {"memory.delay=5"}); });
  EXPECT_TRUE(contains(text, "memory.delay = 5 without the optimizer on the host"));
  EXPECT_TRUE(contains(text, "memory.offload=[optimizer]"));
  text = error_of([] { run_of(mlp_run, {"memory.offload=[parameters]"}); });
  EXPECT_TRUE(contains(text, "memory.offload has parameters, and train.zero = 0"));
  EXPECT_TRUE(contains(text, "train.zero=3"));
  text = error_of([] { run_of(mlp_run, {"memory.offload=[optimiser]"}); });
  EXPECT_TRUE(contains(text, "optimizer"));
}

}  // namespace
}  // namespace braid::train
