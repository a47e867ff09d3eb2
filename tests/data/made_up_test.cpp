// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>

#include "braid/data/options.h"
#include "support/expect.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

TEST(Spiral, HasTheCountsAndShapeOfTheReference) {
  DataOptions options;
  options.kind = Kind::spiral;
  options.noise = 0;
  std::set<std::pair<float, float>> seen;
  int64_t ones = 0;
  for (const auto& [split, count] :
       {std::pair{Split::train, 7000}, {Split::valid, 1500}, {Split::test, 1500}}) {
    const auto source = open_source(options, split, 0);
    ASSERT_EQ(source->size(), count);
    const Sample sample = empty_sample(source->spec());
    for (int64_t i = 0; i < source->size(); ++i) {
      source->read({.index = i}, sample);
      const float x = sample.input.const_data_ptr<float>()[0],
                  y = sample.input.const_data_ptr<float>()[1];
      const int64_t label = *sample.target.const_data_ptr<int64_t>();
      const double radius = std::hypot(x, y), angle = (radius - 0.1) / 0.9 * 4 * std::numbers::pi;
      const double side = label == 0 ? 1 : -1;  // the other arm is turned by half a circle
      EXPECT_NEAR(x, side * radius * std::cos(angle), 1e-4);
      EXPECT_NEAR(y, side * radius * std::sin(angle), 1e-4);
      seen.insert({x, y});
      ones += label;
    }
  }
  EXPECT_EQ(seen.size(), 10000U) << "each point is in one split";
  EXPECT_EQ(ones, 5000);
}

TEST(Spiral, IsNoisyAndSeeded) {
  DataOptions options;
  options.kind = Kind::spiral;
  const auto first = [&](double noise, int64_t seed) {
    options.noise = noise;
    options.data_seed = seed;
    const auto source = open_source(options, Split::train, 0);
    const Sample sample = empty_sample(source->spec());
    std::vector<float> values;
    for (int64_t i = 0; i < source->size(); ++i) {
      source->read({.index = i}, sample);
      values.push_back(sample.input.const_data_ptr<float>()[0]);
    }
    return values;
  };
  const auto clean = first(0, 42), noisy = first(0.05, 42);
  double squares = 0;
  for (size_t i = 0; i < clean.size(); ++i) squares += std::pow(noisy[i] - clean[i], 2);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(clean.size())), 0.05, 0.002);
  EXPECT_EQ(first(0.05, 42), noisy);
  EXPECT_NE(first(0.05, 43), noisy);
}

DataOptions synthetic(std::vector<int64_t> input, std::vector<int64_t> target = {},
                      int64_t classes = 0) {
  DataOptions options;
  options.input_shape = std::move(input);
  options.target_shape = std::move(target);
  options.classes = classes;
  return options;
}

TEST(Synthetic, FieldsAreSmoothRepeatableAndOfUnitSize) {
  DataOptions options = synthetic({3, 32, 64});
  for (const char* pattern : {"smooth", "random"}) {
    options.pattern = pattern;
    const auto source = open_source(options, Split::train, 0);
    EXPECT_EQ(source->size(), 64);
    const Sample a = empty_sample(source->spec()), b = empty_sample(source->spec());
    double squares = 0, steps = 0;
    for (int64_t i = 0; i < 16; ++i) {
      source->read({.index = i}, a);
      const auto* x = a.input.const_data_ptr<float>();
      for (int64_t k = 0; k + 1 < a.input.numel(); ++k)
        squares += x[k] * x[k], steps += std::pow(x[k + 1] - x[k], 2);
    }
    const double count = 16 * 3 * 32 * 64;
    EXPECT_NEAR(squares / count, 1, 0.25) << pattern;
    EXPECT_EQ(steps / count < 0.2, std::string(pattern) == "smooth");
    source->read({.index = 15, .epoch = 9}, b);
    EXPECT_TRUE(a.input.equal(b.input) && a.target.equal(b.target)) << "a function of the index";
    source->read({.index = 14}, b);
    EXPECT_FALSE(a.input.equal(b.input));
  }
}

TEST(Synthetic, SmoothTargetsAreTheFieldMovedOn) {
  const auto source = open_source(synthetic({1, 8, 32}), Split::valid, 0);
  const Sample sample = empty_sample(source->spec());
  source->read({.index = 3}, sample);
  for (int64_t x = 1; x < 32; ++x)
    EXPECT_NEAR(sample.target.const_data_ptr<float>()[x],
                sample.input.const_data_ptr<float>()[x - 1], 1e-5);
}

TEST(Synthetic, MakesClassesAndTokens) {
  const auto classes = open_source(synthetic({3, 8, 8}, {}, 10), Split::train, 0);
  EXPECT_EQ(classes->spec().input.dtype, c10::kFloat);
  EXPECT_EQ(classes->spec().target.dtype, c10::kLong);
  EXPECT_TRUE(classes->spec().target.shape.empty());
  const auto tokens = open_source(synthetic({16}, {16}, 100), Split::train, 0);
  EXPECT_EQ(tokens->spec().tokens, 16);
  const Sample sample = empty_sample(tokens->spec());
  tokens->read({.index = 0}, sample);
  for (int64_t i = 0; i < 15; ++i)
    EXPECT_EQ(sample.target.const_data_ptr<int64_t>()[i],
              sample.input.const_data_ptr<int64_t>()[i + 1]);
  EXPECT_LT(sample.target.max().item<int64_t>(), 100);
  EXPECT_TRUE(
      contains(error_of([] { open_source({}, Split::train, 0); }), "data.input_shape is not set"));
}

}  // namespace
}  // namespace braid::data
