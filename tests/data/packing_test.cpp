// SPDX-License-Identifier: BSD-3-Clause
// Attributes of netCDF: which values are missing, and what the others mean.
#include "data/packing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "braid/data/arrays.h"
#include "braid/data/stats.h"
#include "data/field_file.h"
#include "data/netcdf_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

constexpr float lost = std::numeric_limits<float>::quiet_NaN();

class Packed : public testing::Test {
 protected:
  // One frame of one row.
  std::vector<float> read(VariableFixture variable) {
    const auto width = static_cast<hsize_t>(variable.values.size());
    variable.dims = {"time", "lat", "x"};
    write_netcdf(file_, {time_dimension({0}), latitudes({5}), {.name = "x", .size = width}},
                 {variable});
    return read_again(static_cast<int64_t>(width));
  }
  std::vector<float> read_again(int64_t width) {
    const FieldFile file(file_, {.variables = {"t2m"}});
    std::vector<float> out(static_cast<size_t>(width));
    missing_ = file.read({.cols = width}, out.data());
    const at::Tensor array = read_array(file_, {.dataset = "t2m"});
    const FieldFrame frame = read_frame(file_, {.variables = {"t2m"}}, 0);
    EXPECT_EQ(frame.missing, missing_);
    for (int64_t i = 0; i < width; ++i) {
      const float value = out[static_cast<size_t>(i)];
      for (const at::Tensor& same : {array, frame.values})
        EXPECT_TRUE(same.const_data_ptr<float>()[i] == value ||
                    (std::isnan(value) && std::isnan(same.const_data_ptr<float>()[i])));
    }
    return out;
  }
  std::string error(NumberAttribute number, const Texts& texts = {}) {
    std::vector<NumberAttribute> numbers;
    if (!number.name.empty()) numbers.push_back(std::move(number));
    return error_of([&] { read({.values = {1, 2}, .numbers = numbers, .texts = texts}); });
  }

  test::TempDir dir_;
  std::filesystem::path file_ = dir_ / "a.nc";
  int64_t missing_ = 0;
};

void expect_same(const std::vector<float>& given, const std::vector<float>& expected) {
  ASSERT_EQ(given.size(), expected.size());
  for (size_t i = 0; i < given.size(); ++i)
    EXPECT_TRUE(given[i] == expected[i] || (std::isnan(given[i]) && std::isnan(expected[i])))
        << i << ": " << given[i] << " for " << expected[i];
}

TEST_F(Packed, MissingValueMayBeSeveralNumbers) {
  for (const bool chunked : {false, true}) {
    const auto out = read({.values = {1, -9999, 3, 1e20F, lost},
                           .chunked = chunked,
                           .numbers = {{"missing_value", {-9999, 1e20}}}});
    expect_same(out, {1, lost, 3, lost, lost});
    EXPECT_EQ(missing_, 3);
  }
}

TEST_F(Packed, IntegersAreComparedAsTheyAreStored) {
  const auto out = read({.values = {-32768, 2, 100, -999, 20'000},
                         .type = H5T_STD_I16BE,
                         .numbers = {{"scale_factor", {0.5}},
                                     {"add_offset", {10}},
                                     {"_FillValue", {-32768}, H5T_NATIVE_SHORT},
                                     {"missing_value", {-999}, H5T_NATIVE_SHORT},
                                     {"valid_range", {-10, 100}, H5T_NATIVE_SHORT}}});
  expect_same(out, {lost, 11, 60, lost, lost});
}

TEST_F(Packed, BytesMayBeUnsigned) {
  const std::vector<NumberAttribute> numbers = {{"scale_factor", {2}},
                                                {"_FillValue", {-1}, H5T_NATIVE_SCHAR}};
  const auto out = read({.values = {-1, -2, 0, 127, -128},
                         .type = H5T_STD_I8LE,
                         .numbers = numbers,
                         .texts = {{"_Unsigned", "true"}}});
  expect_same(out, {lost, 508, 0, 254, 256});
  expect_same(read({.values = {200, 100, 255},
                    .type = H5T_STD_U8LE,
                    .numbers = numbers,
                    .texts = {{"_Unsigned", "false"}}}),
              {-112, 200, lost});
}

// What the library writes where nobody wrote; each byte is a number.
TEST_F(Packed, DefaultFillValuesAreNoNumbers) {
  expect_same(read({.values = {1, 9.9692099683868690e+36F}}), {1, lost});
  expect_same(read({.values = {1, 9.9692099683868690e+36F}, .type = H5T_IEEE_F64LE}), {1, lost});
  expect_same(read({.values = {1, -32767}, .type = H5T_STD_I16LE}), {1, lost});
  expect_same(read({.values = {-127, -128}, .type = H5T_STD_I8LE}), {-127, -128});
  expect_same(read({.values = {1, -32767},
                    .type = H5T_STD_I16LE,
                    .numbers = {{"_FillValue", {7}, H5T_NATIVE_SHORT}}}),
              {1, -32767});
}

TEST_F(Packed, ValuesOutsideOfTheirRangeAreMissing) {
  expect_same(read({.values = {-1, 0, 0.1F, 5}, .numbers = {{"valid_min", {0}}}}),
              {lost, 0, 0.1F, 5});
  // Limits are compared in the type of the variable.
  expect_same(read({.values = {-1, 0.1F, 5, 6}, .numbers = {{"valid_range", {0.1, 5}}}}),
              {lost, 0.1F, 5, lost});
  expect_same(read({.values = {1, 2, 3}, .type = H5T_STD_I32LE, .numbers = {{"valid_max", {2.5}}}}),
              {1, 2, lost});
}

// As floats 2^24 and 2^24 + 1 are one number, as doubles 2^53 and 2^53 + 1.
TEST_F(Packed, NeighboursOfAFillValueStay) {
  for (const int64_t large : {int64_t{1} << 24, int64_t{1} << 53}) {
    const VariableFixture variable{
        .dims = {},
        .values = {0, 0},
        .type = H5T_STD_I64LE,
        .numbers = {{"_FillValue", {static_cast<double>(large)}, H5T_NATIVE_LLONG}}};
    read(variable);
    {
      const Hdf5Lock lock;
      const Hdf5Id file(H5Fopen(file_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
      const Hdf5Id dataset(H5Dopen2(file, "t2m", H5P_DEFAULT), H5Dclose);
      const long long values[] = {large, large + 1};
      H5Dwrite(dataset, H5T_NATIVE_LLONG, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    }
    expect_same(read_again(2), {lost, static_cast<float>(large + 1)});
  }
}

TEST_F(Packed, StatisticsCountWhatIsMissing) {
  read({.values = {200, 300, -9999, 9.9692099683868690e+36F},
        .numbers = {{"missing_value", {-9999}, H5T_NATIVE_FLOAT}}});
  const FieldStats stats = field_stats(file_.string(), {.variables = {"t2m"}});
  EXPECT_EQ(stats.channels[0].mean, 250);
  EXPECT_EQ(stats.channels[0].most, 300);
  EXPECT_EQ(stats.channels[0].missing, 2);
}

TEST_F(Packed, AttributesThatCannotBeUnderstoodAreRefused) {
  EXPECT_TRUE(contains(
      error({}, {{"scale_factor", "0.01"}}),
      "attribute scale_factor of dataset t2m of " + file_.string() + " is not a number: \"0.01\""));
  EXPECT_TRUE(contains(error({}, {{"_FillValue", "NaN"}}), "attribute _FillValue"));
  EXPECT_TRUE(contains(error({"add_offset", {1, 2}}), "holds 2 numbers, not one"));
  EXPECT_TRUE(contains(error({"valid_range", {1}}), "holds 1 numbers, not two"));
}

}  // namespace
}  // namespace braid::data
