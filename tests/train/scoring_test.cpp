// SPDX-License-Identifier: BSD-3-Clause
// Metrics and pictures take names, units and coordinates from the data.
#include "braid/train/scoring.h"

#include <gtest/gtest.h>

#include <cmath>

#include "braid/train/maps.h"
#include "train/atlas.h"
#include "train/run.h"

namespace braid::train {
namespace {

using test::contains;
using test::error_of;
using Names = std::vector<std::string>;

struct ScoringTest : testing::Test {
  RunOptions options(std::vector<std::string> sets = {}) {
    sets.push_back("run.dir=" + (dir / "run").string());
    return run_of(vit_run, sets);
  }
  Splits splits(const RunOptions& run, const data::FieldInfo& info, data::Scaling scaling = {}) {
    Splits all = open_splits(run);
    for (auto* split : {&all.train, &all.valid, &all.test})
      *split = std::make_shared<Atlas>(*split, info, scaling);
    return all;
  }
  test::TempDir dir;
};

// The formula of WeatherBench 2 for rows every 5 degrees, written out.
double persistence_by_hand(const data::Source& source) {
  constexpr double degree = M_PI / 180;
  const data::Batch all = whole(source);
  double sum = 0, weights = 0;
  std::vector<double> area;
  for (int row = 0; row < 8; ++row) {
    const double latitude = 20 + 5 * row;
    area.push_back(std::sin((latitude + 2.5) * degree) - std::sin((latitude - 2.5) * degree));
    weights += area.back() / 8;
  }
  for (int64_t sample = 0; sample < all.input.size(0); ++sample)
    for (int64_t channel = 0; channel < 3; ++channel) {
      double square = 0;
      const at::Tensor off =
          all.input[sample][channel].sub(all.target[sample][channel]).to(at::kDouble).square();
      for (int64_t row = 0; row < 8; ++row)
        square += area[static_cast<size_t>(row)] / weights * off[row].mean().item<double>() / 8;
      sum += std::sqrt(square);
    }
  return sum / static_cast<double>(3 * all.input.size(0));
}

TEST_F(ScoringTest, RowsAreWeightedByTheLatitudesOfTheData) {
  const RunOptions run = options();
  const Splits data = splits(run, weather_info());
  TestRun regional(run, data);
  const double found = regional.trainer.evaluate(data::Split::valid).metrics.at("persistence");
  EXPECT_NEAR(found, persistence_by_hand(*data.valid), 1e-6);
  EXPECT_FALSE(contains(regional.lines(), "latitudes"));
  TestRun course(options({"train.area=reference"}), data);
  EXPECT_GT(std::abs(course.trainer.evaluate(data::Split::valid).metrics.at("persistence") - found),
            1e-4);
}

TEST_F(ScoringTest, UnknownLatitudesAreToldOnce) {
  TestRun unknown(options({"valid.every=2"}));
  unknown.trainer.fit();
  const std::string lines = unknown.lines(), line = "The data give no latitudes: metrics assume";
  EXPECT_TRUE(contains(lines, line + " a global grid of 8 rows from 90 to -90 degrees"));
  EXPECT_EQ(lines.find(line), lines.rfind(line));
  TestRun course(options({"train.area=reference", "run.dir=" + (dir / "b").string()}));
  course.trainer.fit();
  EXPECT_FALSE(contains(course.lines(), line));
  const std::string refusal = error_of(
      [&] { TestRun(options({"train.area=cells"})).trainer.evaluate(data::Split::valid); });
  EXPECT_TRUE(contains(refusal, "train.area = cells, but the data give no latitudes"));
  EXPECT_TRUE(contains(refusal, "--set train.area=reference"));
}

TEST_F(ScoringTest, MetricsHaveTheNamesOfTheData) {
  for (const char* loss : {"relative_l2", "mse", "l1"}) {
    const RunOptions run = options({std::string("train.loss=") + loss});
    TestRun fields(run, splits(run, weather_info()));
    const auto metrics = fields.trainer.evaluate(data::Split::valid).metrics;
    for (const char* name : {"rmse", "rmse_air_temperature", "cosine_rain", "persistence"})
      EXPECT_TRUE(metrics.contains(name)) << loss << " " << name;
    EXPECT_FALSE(metrics.contains("acc")) << "no climatology was subtracted";
    EXPECT_EQ(metrics.contains("psnr"), std::string(loss) != "relative_l2");
    EXPECT_FALSE(metrics.contains("ssim")) << "8 rows are fewer than its window of 11";
  }
}

TEST_F(ScoringTest, FieldsWithoutTheirMeanHaveAnAnomalyCorrelation) {
  const RunOptions run = options({"data.names=[a,b,c,d]"});
  TestRun fields(run, splits(run, weather_info(), {.mean = {1, 2, 3}, .std = {1, 1, 1}}));
  const auto metrics = fields.trainer.evaluate(data::Split::valid).metrics;
  EXPECT_TRUE(metrics.contains("acc_a")) << "data.names wins over the files";
  EXPECT_FALSE(metrics.contains("cosine"));
}

TEST_F(ScoringTest, NamesThatDoNotFitAreRefused) {
  const auto refusal = [&](const std::string& set) {
    const RunOptions run = options({set});
    return error_of([&] { scoring_of(run, *splits(run, weather_info()).valid); });
  };
  EXPECT_TRUE(contains(refusal("data.names=[a,b]"), "data.names has 2 names for 3 channels"));
  EXPECT_TRUE(contains(refusal("data.names=[a,b,a]"), "channels 0 and 2 are both called a"));
}

struct Pictures final : report::Sink {
  std::vector<PictureRecord> all;
  void picture(const PictureRecord& record) override { all.push_back(record); }
};

TEST_F(ScoringTest, PicturesAreInPhysicalUnitsWithNorthOnTop) {
  const RunOptions run = options({"report.channel=air_temperature", "train.steps=2"});
  const Splits data = splits(run, weather_info(), {.mean = {250, 0, 0}, .std = {2, 1, 1}});
  Pictures pictures;
  Log log({.file = (dir / "log").string(), .quiet = true});
  const auto model = build_model(run);
  Trainer(*model, data, run, pictures, log).fit();
  ASSERT_EQ(pictures.all.size(), 1u);
  const PictureRecord& picture = pictures.all[0];
  EXPECT_EQ(picture.tag, "Visualization, air_temperature");
  EXPECT_EQ(picture.panels[0].first, "air_temperature (K): target");
  EXPECT_EQ(picture.panels[1].first, "air_temperature (K): prediction");
  const at::Tensor targets = whole(*data.train).target;
  bool found = false;  // the northern row of some sample is the first of the picture
  for (int64_t sample = 0; sample < targets.size(0); ++sample)
    found = found || std::abs(targets[sample][0][7][3].item<float>() * 2 + 250 -
                              picture.panels[0].second[3]) < 1e-4;
  EXPECT_TRUE(found);
}

TEST_F(ScoringTest, AChannelThatIsNotThereIsRefusedBeforeTheFirstStep) {
  const RunOptions run = options({"report.channel=wnd"});
  TestRun fields(run, splits(run, weather_info()));
  const std::string refusal = error_of([&] { fields.trainer.fit(); });
  EXPECT_TRUE(contains(refusal, "report.channel = wnd is not a channel of the fields"));
  EXPECT_TRUE(contains(refusal, "the channels are 0 to 2: air_temperature, wind, rain"));
  EXPECT_TRUE(fields.sink.steps.empty());
}

}  // namespace
}  // namespace braid::train
