// SPDX-License-Identifier: BSD-3-Clause
// Training with values that wait on the host or in fewer bits, against training without.
#include <gtest/gtest.h>

#include "train/run.h"

namespace braid::train {
namespace {

struct Trained {
  std::vector<double> losses;
  std::map<std::string, at::Tensor> weights;
};

Trained trained(const std::string& yaml, std::vector<std::string> sets) {
  TestRun run(run_of(yaml, sets));
  run.trainer.fit();
  Trained result{.losses = {}, .weights = run.weights()};
  for (const StepRecord& step : run.sink.steps) result.losses.push_back(step.loss);
  return result;
}

// Large enough that values are above what stays: 4 x 16 x 32 numbers and more.
Trained gpt_trained(std::vector<std::string> sets) {
  sets.insert(sets.end(),
              {"model.sequence=16", "model.layers=2", "model.width=32", "model.dropout=0.1",
               "data.input_shape=[16]", "data.target_shape=[16]", "train.steps=4"});
  return trained(gpt_run, sets);
}

TEST(StashedTraining, OffloadAndMasksChangeNoBit) {
  const Trained plain = gpt_trained({});
  for (const std::vector<std::string>& sets :
       {std::vector<std::string>{"memory.offload=[activations]"},
        {"memory.offload=[activations]", "memory.window=1", "memory.pack_masks=true"},
        {"memory.pack_masks=true"},
        {"memory.offload=[activations]", "memory.recompute=blocks"},
        {"memory.offload=[activations]", "memory.recompute=attention", "train.micro_batch=1"}}) {
    SCOPED_TRACE(sets.back());
    const bool micro = sets.back() == "train.micro_batch=1";
    const Trained base = micro ? gpt_trained({"train.micro_batch=1"}) : plain;
    const Trained stashed = gpt_trained(sets);
    EXPECT_EQ(stashed.losses, base.losses);
    expect_same_bits(stashed.weights, base.weights);
  }
}

TEST(StashedTraining, ImagesToo) {
  const std::vector<std::string> sets = {"model.width=32", "model.dropout=0.1", "train.steps=3"};
  std::vector<std::string> offload = sets;
  offload.insert(offload.end(), {"memory.offload=[activations]", "memory.pack_masks=true"});
  const Trained plain = trained(vit_run, sets), stashed = trained(vit_run, offload);
  EXPECT_EQ(stashed.losses, plain.losses);
  expect_same_bits(stashed.weights, plain.weights);
}

// Dropout follows ReLU there: nobody else keeps what ReLU gives, so bits take its place.
TEST(StashedTraining, PackedRelusToo) {
  const Trained plain = trained(mlp_run, {"train.steps=4"});
  const Trained packed = trained(mlp_run, {"train.steps=4", "memory.pack_masks=true"});
  EXPECT_EQ(packed.losses, plain.losses);
  expect_same_bits(packed.weights, plain.weights);
}

TEST(StashedTraining, RoundedValuesTrainAsWell) {
  const Trained plain = gpt_trained({});
  for (const std::string format : {"bf16", "int8"}) {
    SCOPED_TRACE(format);
    const Trained stashed = gpt_trained({"memory.stash=" + format});
    EXPECT_EQ(stashed.losses.front(), plain.losses.front());  // the forward pass is not touched
    EXPECT_NE(stashed.losses.back(), plain.losses.back());
    EXPECT_LT(plain.losses.back(), plain.losses.front());
    EXPECT_NEAR(stashed.losses.back(), plain.losses.back(),
                0.02 * (plain.losses.front() - plain.losses.back()));
  }
}

}  // namespace
}  // namespace braid::train
