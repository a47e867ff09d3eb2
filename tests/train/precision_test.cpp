// SPDX-License-Identifier: BSD-3-Clause
// bf16_masters: weights in bf16; what adds up over passes and steps does so in fp32.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/train/measure.h"
#include "train/rig.h"
#include "train/run.h"

namespace braid::train {
namespace {

using Gradients = std::map<std::string, at::Tensor>;

// Of `count` equal samples, one a pass: the mean is the gradient of one.
Gradients gradients_of_equal(const std::string& yaml, const std::string& precision, int64_t count) {
  const RunOptions options =
      run_of(yaml, {"train.precision=" + precision, "train.micro_batch=1", "model.dropout=0",
                    "train.global_batch=" + std::to_string(count)});
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

// Masters are the weights of the policy bf16, which rounds them to bf16 when it computes.
TEST(Bf16Masters, TrainsAsBf16Does) {
  for (const std::string& yaml : {mlp_run, gpt_run, vit_run}) {
    std::vector<std::vector<StepRecord>> runs;
    for (const char* precision : {"bf16", "bf16_masters"}) {
      const test::TempDir dir;
      TestRun run(run_of(yaml, {std::string("train.precision=") + precision, "train.steps=20",
                                "train.clip=1", "run.dir=" + (dir / "run").string()}));
      run.trainer.fit();
      runs.push_back(run.sink.steps);
    }
    for (size_t i = 0; i < runs[0].size(); ++i)
      EXPECT_NEAR(runs[1][i].loss / runs[0][i].loss, 1, 0.02) << i;
  }
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

}  // namespace
}  // namespace braid::train
