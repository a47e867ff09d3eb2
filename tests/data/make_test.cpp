// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/make.h"

#include <gtest/gtest.h>

#include <cmath>

#include "braid/data/npy.h"
#include "braid/data/options.h"
#include "data/field_file.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

DataOptions weather_options(const std::filesystem::path& dir) {
  DataOptions options;
  options.kind = Kind::frames;
  options.train = dir / "train";
  options.valid = dir / "valid";
  options.test = dir / "test";
  options.means = dir / "stats/global_means.npy";
  options.stds = dir / "stats/global_stds.npy";
  return options;
}

// Root mean square of target minus the input moved east by some columns.
double shifted_rmse(const Source& source, int64_t columns) {
  const Sample sample = empty_sample(source.spec());
  const int64_t width = source.spec().input.shape[2];
  double squares = 0, count = 0;
  for (int64_t index = 0; index < source.size(); index += 3) {
    source.read({.index = index}, sample);
    const auto *now = sample.input.const_data_ptr<float>(),
               *next = sample.target.const_data_ptr<float>();
    for (int64_t i = 0; i < sample.input.numel(); ++i) {
      const int64_t x = i % width, from = i - x + (x - columns + width) % width;
      squares += std::pow(next[i] - now[from], 2), ++count;
    }
  }
  return std::sqrt(squares / count);
}

TEST(MakeWeather, GivesSomethingToLearn) {
  test::TempDir dir;
  int64_t calls = 0;
  make_weather(dir.path(),
               {.channels = 4, .height = 24, .width = 48, .frames = 120, .train_years = 2},
               [&](int64_t done, int64_t total) {
                 EXPECT_EQ(done, ++calls);
                 EXPECT_EQ(total, 480);
               });
  EXPECT_EQ(calls, 480);
  const auto train = open_source(weather_options(dir.path()), Split::train, 0);
  EXPECT_EQ(train->size(), 2 * 119);
  const double persistence = shifted_rmse(*train, 0), carried = shifted_rmse(*train, 2);
  EXPECT_GT(persistence, 0.3);
  EXPECT_LT(persistence, 0.6);
  EXPECT_LT(carried, 0.7 * persistence) << "the flow carries fields by width / 24 columns a frame";
  EXPECT_GT(carried, 0.14) << "the noise of one frame cannot be predicted";
  EXPECT_TRUE(has_split(weather_options(dir.path()), Split::test));
  EXPECT_EQ(open_source(weather_options(dir.path()), Split::test, 0)->size(), 119);
}

TEST(MakeWeather, IsNormalisedByItsStatistics) {
  test::TempDir dir;
  make_weather(
      dir.path(),
      {.channels = 3, .height = 16, .width = 32, .frames = 60, .valid_years = 0, .test_years = 0});
  EXPECT_EQ(read_npy(dir / "stats/global_means.npy").sizes(), (std::vector<int64_t>{1, 3, 1, 1}));
  const Scaling scaling = [&] {
    const at::Tensor mean = read_npy(dir / "stats/global_means.npy"),
                     std = read_npy(dir / "stats/global_stds.npy");
    return Scaling{{mean.const_data_ptr<float>(), mean.const_data_ptr<float>() + 3},
                   {std.const_data_ptr<float>(), std.const_data_ptr<float>() + 3}};
  }();
  const FieldFile file(dir / "train/1990.h5", {});
  EXPECT_TRUE(file.direct());
  for (int64_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    std::vector<float> plane(16 * 32);
    for (int64_t t = 0; t < 60; ++t) {
      file.read({.frame = t, .channel = c, .rows = 16, .cols = 32}, plane.data(), scaling);
      for (float x : plane) sum += x, squares += x * x;
    }
    EXPECT_NEAR(sum / (60 * 512), 0, 1e-3);
    EXPECT_NEAR(squares / (60 * 512), 1, 1e-3);
  }
}

TEST(MakeWeather, DependsOnTheSeedAlone) {
  test::TempDir a, b, c;
  const WeatherOptions options{
      .channels = 2, .height = 8, .width = 16, .frames = 5, .valid_years = 0, .test_years = 0};
  WeatherOptions other = options;
  other.seed = 2;
  make_weather(a.path(), options), make_weather(b.path(), options), make_weather(c.path(), other);
  const auto first = [](const test::TempDir& dir) {
    std::vector<float> frame(2 * 8 * 16);
    FieldFile(dir / "train/1990.h5", {})
        .read({.frame = 4, .channels = 2, .rows = 8, .cols = 16}, frame.data());
    return frame;
  };
  EXPECT_EQ(first(a), first(b));
  EXPECT_NE(first(a), first(c));
  EXPECT_TRUE(contains(error_of([&] { make_weather(a.path(), {.channels = 0}); }),
                       "weather of [0, 360, 720]"));
}

TEST(MakeSlices, HasTheLayoutAndUnitsOfTheReference) {
  test::TempDir dir;
  make_slices(dir.path(), {.height = 32, .width = 64, .days = 40, .years = 2});
  const FieldFile file(dir / "2009.h5", {});
  EXPECT_EQ(file.shape(), (FieldShape{40, 3, 33, 64}));
  const double means[] = {6.3024, 278.3945, 18.4262}, stds[] = {3.7376, 21.0588, 16.4687};
  for (int64_t c = 0; c < 3; ++c) {
    double sum = 0, squares = 0;
    std::vector<float> plane(33 * 64);
    for (int64_t t = 0; t < 40; ++t) {
      file.read({.frame = t, .channel = c, .rows = 33, .cols = 64}, plane.data());
      for (double x : plane) sum += x - means[c], squares += (x - means[c]) * (x - means[c]);
    }
    EXPECT_NEAR(sum / (40 * 33 * 64) / stds[c], 0, 0.3);
    EXPECT_NEAR(std::sqrt(squares / (40 * 33 * 64)) / stds[c], 1, 0.3);
  }
}

}  // namespace
}  // namespace braid::data
