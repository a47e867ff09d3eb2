// SPDX-License-Identifier: BSD-3-Clause
// Predictions of a model, and shapes of model and data that do not meet.
#include "braid/train/predict.h"

#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "braid/data/npy.h"
#include "train/run.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;

// Steps of the model on normalised fields, by hand.
TEST(Forecast, IsRepeatedApplication) {
  const RunOptions options = run_of(vit_run);
  const std::unique_ptr<nn::Model> model = build_model(options);
  const at::Tensor now = whole(*open_splits(options).train).input[0].mul(3).add(250);
  const Normalisation scale{.means = at::tensor({249.0F, 250.0F, 251.0F}).reshape({3, 1, 1}),
                            .stds = at::tensor({2.0F, 3.0F, 4.0F}).reshape({3, 1, 1})};
  const at::Tensor states = forecast(*model, scale, now, 3);
  ASSERT_EQ(states.sizes(), (std::vector<int64_t>{3, 3, 8, 16}));
  const c10::NoGradGuard no_grad;
  at::Tensor state = now.sub(scale.means).div(scale.stds).unsqueeze(0);
  for (int64_t step = 0; step < 3; ++step) {
    state = model->forward(state, {.training = false});
    EXPECT_TRUE(states[step].equal(state[0].mul(scale.stds).add(scale.means))) << step;
  }
  EXPECT_TRUE(forecast(*model, {}, now, 1)[0].equal(model->forward(now.unsqueeze(0), {})[0]));
}

TEST(Forecast, NormalisationOfFiles) {
  const test::TempDir dir;
  data::write_npy(dir / "m.npy", at::tensor({1.0, 2.0, 3.0}).reshape({1, 3, 1, 1}));
  data::write_npy(dir / "s.npy", at::tensor({4.0F, 5.0F, 6.0F}));
  data::DataOptions options;
  options.means = (dir / "m.npy").string();
  options.stds = (dir / "s.npy").string();
  const Normalisation scale = normalisation_of(options, 2);  // the first channels
  EXPECT_TRUE(scale.means.equal(at::tensor({1.0F, 2.0F}).reshape({2, 1, 1})));
  EXPECT_TRUE(scale.stds.equal(at::tensor({4.0F, 5.0F}).reshape({2, 1, 1})));
  EXPECT_TRUE(contains(error_of([&] { normalisation_of(options, 4); }),
                       "m.npy holds 3 values, the model has 4 channels"));
  EXPECT_FALSE(normalisation_of({}, 2).means.defined());
}

TEST(SuperResolve, MakesTheFieldFiner) {
  const RunOptions options =
      load_run(std::string(BRAID_SOURCE_DIR) + "/configs/swinir.yaml:tiny", {"train.device=cpu"});
  const std::unique_ptr<nn::Model> model = build_model(options);
  const at::Tensor coarse = whole(*open_splits(options).train).input[0];
  EXPECT_EQ(super_resolve(*model, coarse).sizes(), (std::vector<int64_t>{3, 32, 32}));
  EXPECT_EQ(super_resolve(*model, coarse.narrow(1, 0, 11)).sizes(),
            (std::vector<int64_t>{3, 22, 32}));
}

std::string mismatch(const std::string& yaml, const std::vector<std::string>& sets) {
  return error_of([&] { open_splits(run_of(yaml, sets)); });
}

TEST(CheckShapes, SaysWhatToType) {
  EXPECT_TRUE(contains(mismatch(vit_run, {"data.input_shape=[4, 8, 16]"}),
                       "model.channels_in = 3, but the data have 4"));
  EXPECT_TRUE(contains(mismatch(vit_run, {"model.channels_out=2"}), "--set model.channels_out=3"));
  EXPECT_TRUE(contains(mismatch(vit_run, {"model.image=[8, 8]"}),
                       "model.image = [8, 8], but the data are 8 x 16"));
  EXPECT_TRUE(contains(mismatch(vit_run, {"data.input_shape=[8, 16]"}),
                       "samples of shape [8, 16] for a ViT"));
  EXPECT_TRUE(
      contains(mismatch(vit_run, {"data.target_shape=[8]"}), "targets of shape [8] for a ViT"));
  EXPECT_TRUE(contains(mismatch(gpt_run, {"model.sequence=4"}),
                       "data.sequence = 8 is longer than model.sequence = 4"));
  EXPECT_TRUE(contains(mismatch(gpt_run, {"data.classes=0"}), "the data are not tokens"));
  EXPECT_TRUE(contains(mismatch(mlp_run, {"model.inputs=3"}), "--set model.inputs=2"));
  const std::string tiny = std::string(BRAID_SOURCE_DIR) + "/configs/swinir.yaml:tiny";
  EXPECT_TRUE(contains(error_of([&] { open_splits(load_run(tiny, {"model.scale=4"})); }),
                       "model.scale = 4, but the data have 2"));
  EXPECT_TRUE(
      contains(error_of([&] { open_splits(load_run(tiny, {"data.input_shape=[2, 16, 16]"})); }),
               "model.channels = 3, but the data have 2"));
}

TEST(CopyWeights, NamesWhatDoesNotFit) {
  const std::unique_ptr<nn::Model> model = build_model(run_of(mlp_run));
  State weights;
  for (const Param& param : model->params())
    weights.tensors[param.name] = param.tensor.detach().add(1);
  const Param first = model->params()[0], second = model->params()[1];
  const auto copy = [&] { return error_of([&] { copy_weights(*model, weights); }); };
  const at::Tensor before = first.tensor.detach().clone();
  const at::Tensor kept = weights.tensors.extract(second.name).mapped();
  EXPECT_TRUE(contains(copy(), "the checkpoint has no tensor " + second.name));
  EXPECT_TRUE(contains(copy(), "start anew without --resume"));
  weights.tensors[second.name] = kept.unsqueeze(0);
  EXPECT_TRUE(contains(copy(), second.name + " of the checkpoint has shape 1x16, the model's 16"));
  weights.tensors[second.name] = kept;
  weights.tensors["more"] = kept;
  EXPECT_TRUE(contains(copy(), "the checkpoint has a tensor that the model lacks: more"));
  EXPECT_TRUE(first.tensor.equal(before));  // nothing is copied unless all fits
  weights.tensors.erase("more");
  copy_weights(*model, weights);
  EXPECT_TRUE(first.tensor.equal(before.add(1)));
}

}  // namespace
}  // namespace braid::train
