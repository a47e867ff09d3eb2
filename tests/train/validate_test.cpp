// SPDX-License-Identifier: BSD-3-Clause
// Validation sees each sample once, with the averaged weights where there are such; NaN is named.
#include <gtest/gtest.h>

#include <cmath>

#include "braid/data/make.h"
#include "braid/train/evaluate.h"
#include "train/run.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;

struct Validation : testing::Test {
  RunOptions options(const std::string& yaml, std::vector<std::string> sets) {
    sets.push_back("run.dir=" + (dir / "run").string());
    return run_of(yaml, sets);
  }
  test::TempDir dir;
};

double loss_by_hand(nn::Model& model, const data::Source& source, nn::Loss loss) {
  const c10::NoGradGuard no_grad;
  const data::Batch all = whole(source);
  return nn::loss(loss, model.forward(all.input, {.training = false}), all.target).item<double>();
}

TEST_F(Validation, EachSampleOnce) {
  for (const char* batch : {"1", "4", "15", "99"}) {
    TestRun run(options(mlp_run, {"train.precision=fp64", std::string("valid.batch=") + batch}));
    const Splits splits = open_splits(run.options);
    const ValidRecord record = run.trainer.evaluate(data::Split::valid);
    EXPECT_EQ(record.samples, 15);
    EXPECT_NEAR(record.loss, loss_by_hand(*run.model, *splits.valid, nn::Loss::cross_entropy),
                1e-12);
    const data::Batch all = whole(*splits.valid);
    const at::Tensor right = run.model->forward(all.input, {}).argmax(-1).eq(all.target);
    EXPECT_NEAR(record.metrics.at("accuracy"), right.to(at::kDouble).mean().item<double>(), 1e-12);
  }
}

// Before the first epoch, not after it.
TEST_F(Validation, DataOfAnotherShapeAreRefusedAtTheStart) {
  const data::WeatherOptions small{.channels = 3, .height = 8, .width = 16, .frames = 6};
  data::WeatherOptions large = small, fewer = small;
  large.height = 16, fewer.channels = 2;
  data::make_weather(dir / "small", small);
  data::make_weather(dir / "large", large);
  data::make_weather(dir / "fewer", fewer);
  const auto open = [&](const std::string& valid, const std::string& test) {
    open_splits(options(vit_run, {"data.kind=frames", "data.input_shape=[]",
                                  "data.train=" + (dir / "small/train").string(),
                                  "data.valid=" + (dir / valid / "valid").string(),
                                  "data.test=" + (dir / test / "test").string()}));
  };
  EXPECT_NO_THROW(open("small", "small"));
  const std::string valid = error_of([&] { open("large", "small"); });
  const std::string test = error_of([&] { open("small", "fewer"); });
  EXPECT_TRUE(contains(valid, "data.valid: model.image = [8, 16], but the data are 16 x 16"));
  EXPECT_TRUE(contains(test, "data.test: model.channels_in = 3, but the data have 2"));
  EXPECT_TRUE(contains(test, "give data.test data of the same shape"));
}

TEST_F(Validation, LoaderTakesTheBatchOfTrainingUnlessToldAnother) {
  const auto loading = [&](std::vector<std::string> sets) {
    return evaluation_loader(options(mlp_run, std::move(sets)), c10::kCPU);
  };
  EXPECT_EQ(loading({}).global_batch, 14);
  EXPECT_EQ(loading({"train.micro_batch=7"}).global_batch, 7);
  EXPECT_EQ(loading({"train.micro_batch=7", "valid.batch=3"}).global_batch, 3);
  EXPECT_TRUE(loading({"data.check_finite=true"}).check_finite);
  EXPECT_FALSE(loading({}).shuffle);
  EXPECT_EQ(loading({}).tail, data::Tail::keep);
}

TEST_F(Validation, FieldsInOddBatches) {
  TestRun run(options(vit_run, {"train.precision=fp64", "data.limit_valid=7", "valid.batch=3"}));
  const Splits splits = open_splits(run.options);
  EXPECT_NEAR(run.trainer.evaluate(data::Split::valid).loss,
              loss_by_hand(*run.model, *splits.valid, nn::Loss::relative_l2), 1e-12);
}

// Tokens count, not samples.
TEST_F(Validation, IgnoredTargetsDoNotCount) {
  const auto ragged = std::make_shared<Ragged>(11);
  TestRun run(options(gpt_run, {"train.precision=fp64", "valid.batch=3"}),
              {.train = ragged, .valid = ragged});
  const ValidRecord record = run.trainer.evaluate(data::Split::valid);
  EXPECT_NEAR(record.loss, loss_by_hand(*run.model, *ragged, nn::Loss::cross_entropy), 1e-12);
  EXPECT_DOUBLE_EQ(record.metrics.at("perplexity"), std::exp(record.loss));
}

TEST_F(Validation, AveragedWeightsAreValidated) {
  TestRun run(options(mlp_run, {"train.precision=fp64", "train.ema=0.9"}));
  run.trainer.fit();
  const Splits splits = open_splits(run.options);
  const auto trained = run.weights();
  const double of_average = run.trainer.evaluate(data::Split::valid).loss;
  expect_same_bits(trained, run.weights());  // they are put back
  EXPECT_EQ(of_average, run.sink.valids[run.sink.valids.size() - 2].loss);
  const double of_trained = loss_by_hand(*run.model, *splits.valid, nn::Loss::cross_entropy);
  copy_weights(*run.model, run.trainer.state().part("ema"));
  EXPECT_NEAR(of_average, loss_by_hand(*run.model, *splits.valid, nn::Loss::cross_entropy), 1e-12);
  EXPECT_GT(std::abs(of_average - of_trained), 1e-6);
}

TEST_F(Validation, WhenItHappens) {
  TestRun run(
      options(mlp_run, {"valid.every=4", "train.steps=14", "train.initial_validation=true"}));
  const EndRecord end = run.trainer.fit();
  std::vector<int64_t> steps;
  for (const ValidRecord& record : run.sink.valids) steps.push_back(record.step);
  EXPECT_EQ(steps, (std::vector<int64_t>{0, 4, 8, 12, 14, 14}));
  EXPECT_EQ(run.sink.valids.back().split, "test");
  EXPECT_EQ(end.metrics.at("loss"), run.sink.valids[4].loss);
  EXPECT_EQ(end.metrics.at("test_loss"), run.sink.valids[5].loss);
}

TEST_F(Validation, PatienceStopsTheRun) {
  TestRun run(options(mlp_run, {"train.steps=100", "valid.patience=2", "valid.min_delta=10"}));
  const EndRecord end = run.trainer.fit();
  EXPECT_EQ(end.reason, "early_stop");
  EXPECT_EQ(end.step, 15);  // best at 5, none at 10 and 15
}

TEST_F(Validation, PatienceWatchesTheNamedMetric) {
  TestRun run(options(mlp_run, {"train.steps=200", "valid.patience=2", "valid.metric=accuracy",
                                "valid.highest=true"}));
  const EndRecord end = run.trainer.fit();
  EXPECT_EQ(end.reason, "early_stop");
  const auto& valids = run.sink.valids;
  const size_t last = valids.size() - 2;  // the test comes behind
  double best = 0;
  for (size_t i = 0; i + 2 <= last; ++i) best = std::max(best, valids[i].metrics.at("accuracy"));
  EXPECT_LE(valids[last].metrics.at("accuracy"), best);
  EXPECT_LE(valids[last - 1].metrics.at("accuracy"), best);
}

std::vector<std::string> names(nn::Loss loss, at::Tensor output, at::Tensor input,
                               at::Tensor target) {
  data::Batch batch;
  batch.input = std::move(input);
  batch.target = std::move(target);
  std::vector<std::string> result;
  for (const auto& [name, values] : sample_metrics({.loss = loss}, output, batch)) {
    result.push_back(name);
    EXPECT_EQ(values.sizes(), (std::vector<int64_t>{2})) << name;
  }
  return result;
}

TEST(SampleMetrics, Names) {
  using Names = std::vector<std::string>;
  const RunOptions run = run_of(vit_run, {"data.samples=2"});
  const data::Batch fields = whole(*open_splits(run).train);
  EXPECT_EQ(names(nn::Loss::relative_l2, fields.target, fields.input, fields.target),
            (Names{"rmse", "rmse_c0", "rmse_c1", "rmse_c2", "cosine", "cosine_c0", "cosine_c1",
                   "cosine_c2", "persistence"}));
  const at::Tensor large = fields.target.repeat({1, 1, 4, 4});
  EXPECT_EQ(names(nn::Loss::l1, large, fields.input, large), (Names{"psnr", "ssim", "rfne"}));
  EXPECT_EQ(names(nn::Loss::cross_entropy, fields.input.select(1, 0).select(1, 0), fields.input,
                  fields.input.flatten().narrow(0, 0, 2).to(at::kLong)),
            Names{"accuracy"});
  EXPECT_EQ(names(nn::Loss::mse, fields.input.flatten(1), fields.input, fields.input.flatten(1)),
            Names{});
}

std::string failure(TestRun& run) {
  const std::string text = error_of([&] { run.trainer.fit(); });
  EXPECT_EQ(run.sink.ends.size(), 1u);
  if (!run.sink.ends.empty()) EXPECT_EQ(run.sink.ends[0].reason, "not_finite");
  return text;
}

void spoil(nn::Model& model, size_t which, double value) {
  const c10::NoGradGuard no_grad;
  const at::Tensor tensor = model.params()[which].tensor;
  tensor.fill_(value);
}

TEST_F(Validation, NotFiniteLossStopsWithTheStep) {
  const RunOptions run = options(mlp_run, {"model.dropout=0"});
  Splits splits = open_splits(run);
  const std::vector<int64_t> order = data::epoch_order(70, 3, 0, true);
  splits.train = std::make_shared<Spoilt>(splits.train, order[3 * 14 + 2]);  // in the fourth batch
  TestRun bad(run, splits);
  const std::string text = failure(bad);
  EXPECT_TRUE(contains(text, "the loss is nan at step 4"));
  EXPECT_TRUE(contains(text, "--set train.look_for_nan=true"));
  EXPECT_EQ(bad.sink.steps.size(), 4u);
}

TEST_F(Validation, Fp16StopsTooWhenTheLossItselfIsBad) {
  const RunOptions run = options(mlp_run, {"train.precision=fp16"});
  Splits splits = open_splits(run);
  splits.train = std::make_shared<Spoilt>(splits.train, 5);
  TestRun bad(run, splits);
  EXPECT_TRUE(contains(failure(bad), "the loss is nan at step"));
}

TEST_F(Validation, LookForNanNamesTheParameter) {
  TestRun run(options(mlp_run, {"train.look_for_nan=true"}));
  spoil(*run.model, 2, NAN);
  const std::string text = failure(run);
  EXPECT_TRUE(contains(
      text, "at step 1: the first bad value is in parameter " + run.model->params()[2].name));
}

TEST_F(Validation, LookForNanNamesTheBatch) {
  const RunOptions run = options(mlp_run, {"train.look_for_nan=true", "train.micro_batch=4"});
  Splits splits = open_splits(run);
  splits.train = std::make_shared<Spoilt>(splits.train, 5);
  TestRun bad(run, splits);
  const std::string text = failure(bad);
  EXPECT_TRUE(contains(text, "the first bad value is in the input batch"));
  EXPECT_TRUE(contains(text, "data.check_finite=true"));
}

TEST_F(Validation, LookForNanNamesTheOperator) {
  TestRun run(options(mlp_run, {"train.look_for_nan=true", "model.dropout=0"}));
  spoil(*run.model, 1, 1e30);  // a bias: the first layer's output is finite
  spoil(*run.model, 2, 1e30);  // the second layer's is not
  const std::string text = failure(run);
  EXPECT_TRUE(contains(text, "the first bad value is in the output of aten::"));
  EXPECT_TRUE(contains(text, "at or after " + run.model->params()[2].name) ||
              contains(text, "at or after " + run.model->params()[3].name));
}

TEST_F(Validation, LookForNanChangesNothingElse) {
  TestRun plain(options(mlp_run, {}));
  plain.trainer.fit();
  std::filesystem::remove_all(dir / "run");
  TestRun looking(options(mlp_run, {"train.look_for_nan=true"}));
  looking.trainer.fit();
  expect_same_bits(plain.weights(), looking.weights());
}

}  // namespace
}  // namespace braid::train
