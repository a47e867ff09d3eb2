// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include "braid/data/npy.h"
#include "braid/data/options.h"
#include "data/field_fixture.h"
#include "data/tensor.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

// Years of 5, 3 and 4 frames, paired as the loader of the course does; frame_pairs_test has the
// rest.
class Frames : public testing::Test {
 protected:
  Frames() {
    std::filesystem::create_directory(dir_ / "train");
    write_file(dir_ / "train/1990.h5", {{.dims = {5, 2, 3, 5}}});
    write_file(dir_ / "train/1991.h5", {{.dims = {3, 2, 3, 5}}});
    write_file(dir_ / "train/1992.h5", {{.dims = {4, 2, 3, 5}}});
    options_.kind = Kind::frames;
    options_.train = dir_ / "train";
    options_.pairs = Pairs::reference;
  }

  std::string stats(const char* name, std::vector<double> values, c10::ScalarType dtype,
                    bool flat = false) {
    const auto count = static_cast<int64_t>(values.size());
    at::Tensor tensor = empty_tensor({count}, c10::kDouble);
    std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<double>());
    tensor = tensor.to(dtype);
    write_npy(dir_ / name, flat ? tensor : tensor.reshape({1, count, 1, 1}));
    return dir_ / name;
  }

  std::shared_ptr<const Source> open() { return open_source(options_, Split::train, 0); }

  test::TempDir dir_;
  DataOptions options_;
};

// The frame numbers (of the file) of input and target: both are the first value over 1000.
std::pair<int, int> frames_of(const Source& source, int64_t index) {
  const Sample sample = empty_sample(source.spec());
  source.read({.index = index}, sample);
  return {static_cast<int>(sample.input.const_data_ptr<float>()[0]) / 1000,
          static_cast<int>(sample.target.const_data_ptr<float>()[0]) / 1000};
}

TEST_F(Frames, FollowTheSampleRuleInYearsOfAnyLength) {
  const auto source = open();
  ASSERT_EQ(source->size(), 12);
  using Pair = std::pair<int, int>;
  const std::vector<Pair> expected = {{1, 2}, {1, 2}, {2, 3}, {3, 4},
                                      {1, 2},  // 1990: index 4 folds to 0, then to 1
                                      {1, 2}, {1, 2}, {1, 2},           // 1991
                                      {1, 2}, {1, 2}, {2, 3}, {1, 2}};  // 1992
  for (int64_t i = 0; i < 12; ++i)
    EXPECT_EQ(frames_of(*source, i), expected[static_cast<size_t>(i)]) << i;
  EXPECT_TRUE(contains(source->describe(4), "1990.h5, frame 1"));
  EXPECT_TRUE(contains(source->describe(10), "1992.h5, frame 2"));
}

TEST_F(Frames, GiveTheWholeFrameOfEachChannel) {
  const auto source = open();
  EXPECT_EQ(source->spec().input.shape, (std::vector<int64_t>{2, 3, 5}));
  const Sample sample = empty_sample(source->spec());
  source->read({.index = 2}, sample);
  const auto* input = sample.input.const_data_ptr<float>();
  for (int64_t c = 0; c < 2; ++c)
    for (int64_t y = 0; y < 3; ++y)
      for (int64_t x = 0; x < 5; ++x)
        EXPECT_EQ(input[(c * 3 + y) * 5 + x], field_value(2, c, y, x));
}

TEST_F(Frames, AreCutFromTheTopLeftAndLimited) {
  options_.size = {2, 3};
  options_.channels = 1;
  options_.limit_train = 4;
  const auto source = open();
  EXPECT_EQ(source->size(), 4);
  EXPECT_EQ(source->spec().target.shape, (std::vector<int64_t>{1, 2, 3}));
  const Sample sample = empty_sample(source->spec());
  source->read({.index = 3}, sample);
  EXPECT_EQ(sample.target.const_data_ptr<float>()[5], field_value(4, 0, 1, 2));
}

TEST_F(Frames, AreNormalisedByStatisticsOfEitherPrecision) {
  for (auto dtype : {c10::kFloat, c10::kDouble}) {
    options_.means = stats("means.npy", {1000, 1100}, dtype, dtype == c10::kDouble);
    options_.stds = stats("stds.npy", {10, 20}, dtype);
    const auto source = open();
    const Sample sample = empty_sample(source->spec());
    source->read({.index = 0}, sample);
    EXPECT_EQ(sample.input.const_data_ptr<float>()[0], 0);
    EXPECT_EQ(sample.input.const_data_ptr<float>()[1], 0.1F);
    EXPECT_EQ(sample.input.const_data_ptr<float>()[17], 2.0F / 20.0F);
    EXPECT_EQ(sample.target.const_data_ptr<float>()[0], 100);
  }
}

TEST_F(Frames, AreNormalisedByGivenStatisticsInsteadOfTheFiles) {
  options_.means = stats("means.npy", {1000, 1100}, c10::kFloat);
  options_.stds = stats("stds.npy", {10, 20}, c10::kFloat);
  const Statistics used = open()->statistics();
  EXPECT_EQ(used, (Statistics{{"data.means", {1000, 1100}}, {"data.stds", {10, 20}}}));
  std::filesystem::remove(options_.means);
  std::filesystem::remove(options_.stds);
  options_.statistics = used;
  const auto source = open();
  const Sample sample = empty_sample(source->spec());
  source->read({.index = 0}, sample);
  EXPECT_EQ(sample.input.const_data_ptr<float>()[17], 2.0F / 20.0F);
  EXPECT_EQ(source->statistics(), used);
}

TEST_F(Frames, TakeAWiderStep) {
  write_file(dir_ / "train/1991.h5", {{.dims = {7, 2, 3, 5}}});
  std::filesystem::remove(dir_ / "train/1990.h5");
  std::filesystem::remove(dir_ / "train/1992.h5");
  options_.step = 2;
  const auto source = open();
  using Pair = std::pair<int, int>;
  const std::vector<Pair> expected = {{2, 4}, {3, 5}, {2, 4}, {3, 5}, {4, 6}, {2, 4}, {3, 5}};
  for (int64_t i = 0; i < 7; ++i)
    EXPECT_EQ(frames_of(*source, i), expected[static_cast<size_t>(i)]) << i;
}

TEST_F(Frames, ReadNetcdfVariables) {
  write_file(dir_ / "a.nc", {{.name = "t2m", .dims = {4, 3, 5}, .chunk = {1, 3, 5}},
                             {.name = "u10", .dims = {4, 3, 5}, .chunk = {1, 3, 5}}});
  options_.train = dir_ / "*.nc";
  options_.variables = {"u10", "t2m"};
  const auto source = open();
  EXPECT_EQ(source->spec().input.shape, (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(frames_of(*source, 2), (std::pair<int, int>{2, 3}));
}

TEST_F(Frames, SayWhatIsWrong) {
  auto text_with = [&](auto change) {
    DataOptions options = options_;
    change(options);
    return error_of([&] { open_source(options, Split::train, 0); });
  };
  const std::string means = stats("m3.npy", {1, 2, 3}, c10::kFloat),
                    stds = stats("s2.npy", {1, 2}, c10::kFloat);
  EXPECT_TRUE(contains(text_with([&](auto& o) { o.means = means, o.stds = stds; }),
                       "3 values for 2 channels"));
  EXPECT_TRUE(contains(text_with([&](auto& o) { o.stds = stds; }), "data.stds without data.means"));
  const std::string zero = stats("zero.npy", {1, 0}, c10::kFloat);
  EXPECT_TRUE(contains(text_with([&](auto& o) { o.means = stds, o.stds = zero; }),
                       "channel 1 has the standard deviation 0"));
  EXPECT_TRUE(
      contains(text_with([](auto& o) { o.size = {4, 5}; }), "set data.size to at most [3, 5]"));
  EXPECT_TRUE(contains(text_with([](auto& o) { o.size = {4}; }), "[height, width]"));
  EXPECT_TRUE(
      contains(text_with([](auto& o) { o.channels = 3; }), "set data.channels to at most 2"));
  EXPECT_TRUE(contains(text_with([](auto& o) { o.step = 2; }), "too few for data.step = 2"));
  EXPECT_TRUE(contains(text_with([](auto& o) { o.limit_train = 0; }), "data.limit_train = 0"));
  EXPECT_TRUE(contains(text_with([](auto& o) { o.train = ""; }), "data.train is not set"));
}

TEST_F(Frames, SayWhereDataComeFromWhenTheFolderIsMissing) {
  options_.train = dir_ / "weather/train";
  const std::string text = error_of([&] { open(); });
  EXPECT_TRUE(contains(text, "no such file or folder"));
  EXPECT_TRUE(contains(text, "braid data make weather " + (dir_ / "weather").string()));
  std::filesystem::create_directories(dir_ / "weather/train");
  EXPECT_TRUE(contains(error_of([&] { open(); }), "no data files in"));
}

TEST_F(Frames, MustAgreeInTheirGrid) {
  write_file(dir_ / "train/1993.h5", {{.dims = {4, 2, 3, 6}}});
  const std::string text = error_of([&] { open(); });
  EXPECT_TRUE(contains(text, "[2, 3, 5]"));
  EXPECT_TRUE(contains(text, "1993.h5 of [2, 3, 6]"));
}

}  // namespace
}  // namespace braid::data
