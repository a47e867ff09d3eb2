// SPDX-License-Identifier: BSD-3-Clause
// bf16_masters: weights in bf16; what adds up over passes and steps does so in fp32. train.stream:
// the sums that go from block to block in fewer bits.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/train/measure.h"
#include "train/rig.h"
#include "train/run.h"

namespace braid::train {
namespace {

using Gradients = std::map<std::string, at::Tensor>;
using Sets = std::vector<std::string>;

// Of `count` equal samples, one a pass: the mean is the gradient of one.
Gradients gradients_of_equal(const std::string& yaml, const std::string& precision, int64_t count,
                             const Sets& more = {}) {
  Sets sets = {"train.precision=" + precision, "train.micro_batch=1", "model.dropout=0",
               "train.global_batch=" + std::to_string(count)};
  sets.insert(sets.end(), more.begin(), more.end());
  const RunOptions options = run_of(yaml, sets);
  Rig rig(options, {.device = c10::kCPU, .dry = false, .batch_ahead = false});
  if (rig.batch.input.is_floating_point()) rig.batch.input.fill_(0.7);
  if (rig.batch.target.is_floating_point()) rig.batch.target.fill_(0.3);
  rig.parts.step.gradients(rig.batch, rig.pass());
  Gradients all;
  for (const Param& param : rig.model->params()) all[param.name] = param.tensor.grad().clone();
  return all;
}

double off_by(const Gradients& got, const Gradients& wanted) {
  double difference = 0, whole = 0;
  for (const auto& [name, value] : wanted) {
    const at::Tensor exact = value.to(c10::kDouble);
    difference += std::pow(got.at(name).to(c10::kDouble).sub(exact).norm().item<double>(), 2);
    whole += std::pow(exact.norm().item<double>(), 2);
  }
  return std::sqrt(difference / whole);
}

TEST(Bf16Masters, GradientsOfManyPassesAddUpInFp32) {
  for (const std::string& yaml : {mlp_run, gpt_run, vit_run}) {
    const Gradients one = gradients_of_equal(yaml, "bf16_masters", 1);
    for (const auto& [name, value] : one) EXPECT_EQ(value.scalar_type(), c10::kFloat) << name;
    EXPECT_LT(off_by(gradients_of_equal(yaml, "bf16_masters", 64), one), 1e-6);
    EXPECT_GT(off_by(gradients_of_equal(yaml, "bf16_params", 64),
                     gradients_of_equal(yaml, "bf16_params", 1)),
              1e-3);
  }
}

std::vector<StepRecord> twenty_steps(const std::string& yaml, const Sets& sets) {
  const test::TempDir dir;
  Sets all = {"train.steps=20", "train.clip=1", "run.dir=" + (dir / "run").string()};
  all.insert(all.end(), sets.begin(), sets.end());
  TestRun run(run_of(yaml, all));
  run.trainer.fit();
  return run.sink.steps;
}

void expect_trains_as_bf16(const std::string& yaml, const Sets& sets) {
  const auto usual = twenty_steps(yaml, {"train.precision=bf16"}), found = twenty_steps(yaml, sets);
  for (size_t i = 0; i < usual.size(); ++i)
    EXPECT_NEAR(found[i].loss / usual[i].loss, 1, 0.02) << i;
}

// Masters are the weights of the policy bf16, which rounds them to bf16 when it computes.
TEST(Bf16Masters, TrainsAsBf16Does) {
  for (const std::string& yaml : {mlp_run, gpt_run, vit_run})
    expect_trains_as_bf16(yaml, {"train.precision=bf16_masters"});
}

TEST(Bf16Masters, Bytes) {
  const RunOptions options =
      run_of(gpt_run, {"train.precision=bf16_masters", "train.micro_batch=1"});
  const Measured measured = measure(options, {.device = {c10::kCUDA, 0}});
  const int64_t count = build_model(options)->parameters();
  const memory::KindBytes& peak = measured.second_step.peak.by_kind;
  const auto bytes = [&](MemoryKind kind) { return peak[static_cast<size_t>(kind)]; };
  EXPECT_EQ(bytes(MemoryKind::parameter), 2 * count);
  EXPECT_EQ(bytes(MemoryKind::gradient), 4 * count);
  EXPECT_EQ(bytes(MemoryKind::master_weight), 4 * count);
  EXPECT_GE(bytes(MemoryKind::optimizer_state), 8 * count);
}

const Sets narrow = {"train.precision=bf16", "train.stream=bf16"};

TEST(NarrowStream, TrainsAsBf16Does) {
  for (const std::string& yaml : {gpt_run, vit_run}) expect_trains_as_bf16(yaml, narrow);
}

// Branches are of bf16 in either case: what is added to is rounded as often as they are.
TEST(NarrowStream, GradientsAreOffByRoundingAlone) {
  for (const std::string& yaml : {gpt_run, vit_run}) {
    const Gradients exact = gradients_of_equal(yaml, "fp64", 1);
    const double wide = off_by(gradients_of_equal(yaml, "bf16", 1), exact);
    const double found = off_by(gradients_of_equal(yaml, "bf16", 1, narrow), exact);
    EXPECT_NE(found, wide);
    EXPECT_LT(found, 2 * wide);
  }
}

// Norms keep their input, fp32 or bf16: two of a block, one behind the last.
TEST(NarrowStream, Bytes) {
  const int64_t samples = 64, tokens = 8, width = 16, blocks = 5;
  // The peak is in the head, where all is kept.
  const Sets deep = {"model.layers=5", "model.dropout=0", "model.vocabulary=1024",
                     "train.global_batch=64", "train.precision=bf16"};
  const auto kept = [&](const Sets& more) {
    Sets sets = deep;
    sets.insert(sets.end(), more.begin(), more.end());
    const Measured measured = measure(run_of(gpt_run, sets), {});
    return measured.second_step.peak.by_kind[static_cast<size_t>(MemoryKind::activation)];
  };
  EXPECT_EQ(kept({}) - kept(narrow), (2 * blocks + 1) * samples * tokens * width * 2);
}

TEST(NarrowStream, Refused) {
  const auto text = [](const std::string& yaml, const Sets& sets) {
    return error_of([&] { build_model(run_of(yaml, sets)); });
  };
  EXPECT_TRUE(contains(text(gpt_run, {"train.stream=bf16"}),
                       "a residual stream in bf16 under computation in fp32"));
  EXPECT_TRUE(contains(text(gpt_run, {"train.precision=bf16", "train.stream=fp16"}),
                       "set train.stream=bf16 or a wider dtype"));
  EXPECT_TRUE(contains(text(mlp_run, narrow), "train.stream = bf16 for an mlp"));
  Sets reference = narrow;
  reference.emplace_back("model.kernels=reference");
  EXPECT_TRUE(
      contains(text(vit_run, reference), "model.kernels = reference with train.stream = bf16"));
}

}  // namespace
}  // namespace braid::train
