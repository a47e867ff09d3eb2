// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/stats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/data/make.h"
#include "braid/data/npy.h"
#include "data/field_fixture.h"
#include "data/moments.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Far from zero: a sum of squares would lose all digits of the deviation.
std::vector<float> some_values(int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(100'000.0F + static_cast<float>((i * 37) % 101) * 0.25F);
  return values;
}

TEST(Moments, AreThoseOfTheFormula) {
  for (const int64_t count : {1, 2, 15, 16, 17, 100, 1000}) {
    const std::vector<float> values = some_values(count);
    const Moments moments = moments_of(values.data(), count);
    long double mean = 0, squares = 0;
    for (const float x : values) mean += x;
    mean /= count;
    for (const float x : values) squares += (x - mean) * (x - mean);
    EXPECT_EQ(moments.count, count);
    EXPECT_NEAR(moments.mean, static_cast<double>(mean), 1e-9);
    EXPECT_NEAR(moments.std(), static_cast<double>(std::sqrt(squares / count)), 1e-9);
    EXPECT_EQ(moments.least, *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(moments.most, *std::max_element(values.begin(), values.end()));
  }
}

TEST(Moments, OfPartsAreThoseOfAll) {
  const std::vector<float> values = some_values(1000);
  const Moments all = moments_of(values.data(), 1000);
  Moments parts;
  for (const auto& [first, count] : {std::pair{0, 1}, {1, 0}, {1, 332}, {333, 667}})
    parts.add(moments_of(values.data() + first, count));
  EXPECT_EQ(parts.count, 1000);
  EXPECT_NEAR(parts.mean, all.mean, 1e-9);
  EXPECT_NEAR(parts.std(), all.std(), 1e-9);
  EXPECT_EQ(parts.least, all.least);
  EXPECT_EQ(parts.most, all.most);
}

TEST(Moments, LeaveOutWhatIsMissing) {
  std::vector<float> values = some_values(50);
  const Moments whole = moments_of(values.data(), 50);
  values.insert(values.begin() + 20, nan);
  values.insert(values.begin() + 3, -std::numeric_limits<float>::infinity());
  values.push_back(std::numeric_limits<float>::infinity());
  const Moments some = moments_of(values.data(), 53);
  EXPECT_EQ(some.missing, 3);
  EXPECT_EQ(some.count, 50);
  EXPECT_NEAR(some.mean, whole.mean, 1e-9);
  EXPECT_NEAR(some.std(), whole.std(), 1e-9);
  EXPECT_EQ(some.least, whole.least);
  EXPECT_EQ(some.most, whole.most);
}

TEST(Moments, OfEqualNumbersDoNotSpread) {
  const std::vector<float> values(333, 0.1F);
  Moments moments = moments_of(values.data(), 333);
  moments.add(moments_of(values.data(), 7));
  EXPECT_EQ(moments.std(), 0);
}

// The file's values are frame * 1000 + channel * 100 + row * 10 + column, of 4 x 2 x 3 x 5.
TEST(FieldStats, OfAllFramesOfAllFiles) {
  test::TempDir dir;
  write_file(dir / "1990.h5", {{}});
  write_file(dir / "1991.h5", {{.dims = {2, 2, 3, 5}, .chunk = {1, 1, 3, 5}}});
  int64_t told = 0;
  const FieldStats stats = field_stats(dir.path().string(), {}, [&](int64_t done, int64_t total) {
    told = done;
    EXPECT_EQ(total, 6);
  });
  EXPECT_EQ(told, 6);
  EXPECT_EQ(stats.files, 2);
  EXPECT_EQ(stats.frames, 6);
  EXPECT_EQ(stats.height, 3);
  EXPECT_EQ(stats.width, 5);
  ASSERT_EQ(stats.channels.size(), 2U);
  for (size_t c = 0; c < 2; ++c) {
    // Frames 0 1 2 3 0 1: mean 7/6, variance 41/36; rows: 1 and 2/3; columns: 2 and 2.
    const ChannelStats& channel = stats.channels[c];
    EXPECT_EQ(channel.name, std::to_string(c));
    EXPECT_NEAR(channel.mean, 1000 * 7.0 / 6 + 100.0 * static_cast<double>(c) + 12, 1e-9);
    EXPECT_NEAR(channel.std, std::sqrt(1e6 * 41 / 36 + 100 * 2.0 / 3 + 2), 1e-9);
    EXPECT_EQ(channel.least, field_value(0, static_cast<int64_t>(c), 0, 0));
    EXPECT_EQ(channel.most, field_value(3, static_cast<int64_t>(c), 2, 4));
    EXPECT_EQ(channel.missing, 0);
  }
}

TEST(FieldStats, OfPackedVariablesWithMissingValues) {
  test::TempDir dir;
  write_file(dir / "1990.nc",
             {{.name = "u10",
               .dims = {2, 1, 2},
               .values = {1, 2, 3, -99},
               .type = H5T_STD_I16LE,
               .attributes = {{"scale_factor", 0.5}, {"add_offset", 10}, {"_FillValue", -99}}},
              {.name = "t2m", .dims = {2, 1, 2}, .values = {280, 280, 280, 280}}});
  const FieldStats stats = field_stats((dir / "*.nc").string(), {.variables = {"t2m", "u10"}});
  ASSERT_EQ(stats.channels.size(), 2U);
  EXPECT_EQ(stats.channels[0].name, "t2m");
  EXPECT_EQ(stats.channels[0].std, 0);
  const ChannelStats& wind = stats.channels[1];
  EXPECT_EQ(wind.missing, 1);
  EXPECT_DOUBLE_EQ(wind.mean, 11);
  EXPECT_NEAR(wind.std, std::sqrt(0.5 / 3), 1e-12);

  write_stats(dir / "stats", stats.channels);
  const at::Tensor means = read_npy(dir / "stats/global_means.npy");
  const at::Tensor stds = read_npy(dir / "stats/global_stds.npy");
  EXPECT_EQ(means.sizes(), (std::vector<int64_t>{1, 2, 1, 1}));
  EXPECT_EQ(means.const_data_ptr<float>()[0], 280);
  EXPECT_EQ(stds.const_data_ptr<float>()[0], 1) << "fields are divided by it";
  EXPECT_EQ(stds.const_data_ptr<float>()[1], static_cast<float>(wind.std));
}

TEST(FieldStats, OfMadeUpWeatherAreThoseThatCameWithIt) {
  test::TempDir dir;
  make_weather(dir.path(),
               {.channels = 3, .height = 8, .width = 16, .frames = 21, .train_years = 2});
  write_stats(dir / "own", field_stats((dir / "train").string()).channels);
  for (const char* name : {"global_means.npy", "global_stds.npy"})
    EXPECT_TRUE(read_npy(dir / "own" / name).equal(read_npy(dir / "stats" / name))) << name;
}

TEST(FieldStats, RefusesWhatHasNoValuesOrNoFiles) {
  test::TempDir dir;
  const std::string where = dir.path().string();
  EXPECT_TRUE(contains(error_of([&] { field_stats(where); }), "no data files in " + where));
  EXPECT_TRUE(contains(error_of([&] { field_stats(where + "/none"); }),
                       "the data = " + where + "/none: no such file or folder"));
  write_file(dir / "1990.h5", {{.dims = {2, 1, 1, 2}, .values = {nan, nan, nan, nan}}});
  EXPECT_TRUE(contains(error_of([&] { field_stats(where); }), "channel 0 of " + where));
  write_file(dir / "1991.h5", {{.dims = {2, 1, 2, 2}}});
  EXPECT_TRUE(contains(error_of([&] { field_stats(where); }), "has fields of [1, 1, 2]"));
}

}  // namespace
}  // namespace braid::data
