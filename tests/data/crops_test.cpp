// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "braid/data/npy.h"
#include "braid/data/options.h"
#include "data/field_fixture.h"
#include "data/fields.h"
#include "data/reduce.h"
#include "data/tensor.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

TEST(Bicubic, GivesTheNumbersOfTorch) {
  const std::string golden = std::string(BRAID_SOURCE_DIR) + "/tests/golden/data_bicubic_";
  const at::Tensor fine = read_npy(golden + "fine.npy");
  for (int64_t scale : {2, 3, 4}) {
    const at::Tensor expected = read_npy(golden + "x" + std::to_string(scale) + ".npy");
    const int64_t points = 12 / scale * (24 / scale);
    std::vector<float> coarse(static_cast<size_t>(points));
    for (int64_t c = 0; c < 2; ++c) {
      reduce_bicubic(fine.const_data_ptr<float>() + c * 12 * 24, {12, 24, scale}, coarse.data());
      for (int64_t i = 0; i < points; ++i)
        EXPECT_NEAR(coarse[static_cast<size_t>(i)],
                    expected.const_data_ptr<float>()[c * points + i], 1e-4)
            << "scale " << scale << " channel " << c << " point " << i;
    }
  }
}

TEST(Bicubic, HasTheFourTapsOfFactorTwo) {
  std::vector<float> fine(64, 0.0F), coarse(16);
  fine[3 * 8 + 3] = 1;  // a single point: the taps of its neighbourhood
  reduce_bicubic(fine.data(), {8, 8, 2}, coarse.data());
  EXPECT_FLOAT_EQ(coarse[1 * 4 + 1], 0.59375F * 0.59375F);
  EXPECT_FLOAT_EQ(coarse[1 * 4 + 2], 0.59375F * -0.09375F);
  EXPECT_FLOAT_EQ(coarse[2 * 4 + 2], 0.09375F * 0.09375F);
  EXPECT_EQ(coarse[0], 0);
}

class Crops : public testing::Test {
 protected:
  Crops() {
    write_file(dir_ / "2008.h5", {{.dims = {3, 2, 9, 16}}});
    write_file(dir_ / "2009.h5", {{.dims = {2, 2, 9, 16}}});
    options_.kind = Kind::crops;
    options_.train = dir_.path();
  }
  std::shared_ptr<const Source> open(uint64_t seed = 1) {
    return open_source(options_, Split::train, seed);
  }

  test::TempDir dir_;
  DataOptions options_;
};

std::vector<float> values_of(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), tensor.const_data_ptr<float>() + tensor.numel()};
}

TEST_F(Crops, OfWholeSlicesDropTheOddRow) {
  const auto source = open();
  EXPECT_EQ(source->size(), 5);
  EXPECT_EQ(source->spec().target.shape, (std::vector<int64_t>{2, 8, 16}));
  EXPECT_EQ(source->spec().input.shape, (std::vector<int64_t>{2, 4, 8}));
  const Sample sample = empty_sample(source->spec());
  source->read({.index = 4}, sample);
  EXPECT_EQ(values_of(sample.target).back(), field_value(1, 1, 7, 15));
  EXPECT_TRUE(contains(source->describe(4), "2009.h5, frame 1"));
  // A field that is linear in both directions stays so: the middle of the four points.
  EXPECT_NEAR(values_of(sample.input)[1 * 8 + 1], field_value(1, 0, 0, 0) + 2.5 * 10 + 2.5, 1e-3);
}

TEST_F(Crops, AreSquaresDrawnByEpochAndIndex) {
  options_.size = {4};
  options_.patches = 8;
  const auto source = open();
  EXPECT_EQ(source->size(), 5 * 8);
  std::set<float> corners;
  for (int64_t index = 0; index < 40; ++index) {
    const Sample sample = empty_sample(source->spec()), again = empty_sample(source->spec());
    source->read({.index = index, .epoch = 3}, sample);
    source->read({.index = index, .epoch = 3}, again);
    EXPECT_EQ(values_of(sample.target), values_of(again.target));
    const auto values = values_of(sample.target);
    const int64_t frame = index / 8 < 3 ? index / 8 : index / 8 - 3;
    const float corner = values[0] - static_cast<float>(frame * 1000);
    EXPECT_EQ(values[15], values[0] + 33) << "a whole square";
    EXPECT_EQ(values[16], values[0] + 100) << "the same place in the other channel";
    EXPECT_GE(corner, 0);
    EXPECT_LE(corner, 4 * 10 + 12);
    corners.insert(corner);
  }
  EXPECT_GT(corners.size(), 15U) << "places differ";
}

TEST_F(Crops, DifferBetweenEpochsAndSeeds) {
  options_.size = {4};
  const auto corner = [&](uint64_t seed, int64_t epoch) {
    const auto source = open(seed);
    std::vector<float> corners;
    const Sample sample = empty_sample(source->spec());
    for (int64_t i = 0; i < 16; ++i) {
      source->read({.index = i, .epoch = epoch}, sample);
      corners.push_back(sample.target.const_data_ptr<float>()[0]);
    }
    return corners;
  };
  EXPECT_EQ(corner(1, 0), corner(1, 0));
  EXPECT_NE(corner(1, 0), corner(1, 1));
  EXPECT_NE(corner(1, 0), corner(2, 0));
}

TEST_F(Crops, ReadNoMoreThanTheSquare) {
  const FieldFiles files(options_, Split::train);
  std::vector<float> out(2 * 4 * 4);
  files.files()[0]->read({.channels = 2, .row = 2, .rows = 4, .col = 3, .cols = 4}, out.data());
  EXPECT_EQ(files.files()[0]->bytes_read(), 2 * 4 * 4 * 4);
}

TEST_F(Crops, TakeEveryNthPointWithNoise) {
  options_.reduce = "uniform";
  const auto plain = open();
  const Sample sample = empty_sample(plain->spec());
  plain->read({.index = 1}, sample);
  EXPECT_EQ(values_of(sample.input)[8 + 3], field_value(1, 0, 2, 6));

  options_.reduce = "noisy_uniform";
  options_.noise_ratio = 0.1;
  EXPECT_TRUE(contains(error_of([&] { open(); }), "noisy_uniform without data.stds"));
  at::Tensor stds = empty_tensor({2}, c10::kFloat);
  stds.mutable_data_ptr<float>()[0] = 100;
  stds.mutable_data_ptr<float>()[1] = 0.001F;
  write_npy(dir_ / "stds.npy", stds);
  options_.stds = dir_ / "stds.npy";
  const Sample noisy = empty_sample(plain->spec());
  open()->read({.index = 1}, noisy);
  double spread = 0;
  for (int64_t i = 0; i < 32; ++i) {
    const double difference =
        noisy.input.const_data_ptr<float>()[i] - sample.input.const_data_ptr<float>()[i];
    spread += difference * difference / 32;
    EXPECT_NEAR(values_of(noisy.input)[32 + i], values_of(sample.input)[32 + i], 1e-2);
  }
  EXPECT_NEAR(std::sqrt(spread), 10, 4) << "noise_ratio x std of the channel";
  EXPECT_EQ(values_of(noisy.target), values_of(sample.target));
}

TEST_F(Crops, SayWhatIsWrong) {
  options_.size = {10};
  EXPECT_TRUE(contains(error_of([&] { open(); }), "set data.size to at most 8"));
  options_.size = {5};
  EXPECT_TRUE(contains(error_of([&] { open(); }), "no multiple of data.scale = 2"));
  options_.size = {4, 6};
  EXPECT_TRUE(contains(error_of([&] { open(); }), "one side of a square"));
  options_.size = {};
  options_.train = dir_ / "nowhere";
  EXPECT_TRUE(contains(error_of([&] { open(); }), "braid data make slices"));
}

}  // namespace
}  // namespace braid::data
