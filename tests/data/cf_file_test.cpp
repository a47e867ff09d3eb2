// SPDX-License-Identifier: BSD-3-Clause
// Forecasts in netCDF-4: attributes and dimension scales, read back with the HDF5 library.
#include "braid/data/cf_file.h"

#include <ATen/ops/arange.h>
#include <gtest/gtest.h>

#include <map>

#include "data/hdf5.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;

std::string text_attribute(hid_t object, const char* name) {
  const Hdf5Id attribute(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  if (!attribute) return "<none>";
  const Hdf5Id type(H5Aget_type(attribute), H5Tclose);
  std::string text(H5Tget_size(type), '\0');
  H5Aread(attribute, type, text.data());
  return text.c_str();
}

// Names of the datasets that DIMENSION_LIST refers to, in the order of the dimensions.
std::vector<std::string> scales_of(hid_t file, const char* variable) {
  const Hdf5Id dataset(H5Dopen2(file, variable, H5P_DEFAULT), H5Dclose);
  const Hdf5Id attribute(H5Aopen(dataset, "DIMENSION_LIST", H5P_DEFAULT), H5Aclose);
  const Hdf5Id type(H5Aget_type(attribute), H5Tclose), space(H5Aget_space(attribute), H5Sclose);
  std::vector<hvl_t> lists(3);
  EXPECT_EQ(H5Sget_simple_extent_npoints(space), 3);
  H5Aread(attribute, type, lists.data());
  std::vector<std::string> names;
  for (const hvl_t& list : lists) {
    EXPECT_EQ(list.len, 1u);
    char name[64] = {};
    const Hdf5Id scale(H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, list.p), H5Dclose);
    H5Iget_name(scale, name, sizeof name);
    names.emplace_back(name);
  }
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists.data());
  return names;
}

std::vector<double> values_of(hid_t file, const char* name, size_t count) {
  const Hdf5Id dataset(H5Dopen2(file, name, H5P_DEFAULT), H5Dclose);
  std::vector<double> values(count);
  H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
  return values;
}

CfFields small_forecast() {
  return {.values = at::arange(2 * 2 * 3 * 4, c10::kFloat).view({2, 2, 3, 4}),
          .fields = {.names = {"t2m", "10m wind"},
                     .units = {"K", ""},
                     .latitudes = {10, 20, 30},
                     .longitudes = {0, 90, 180, 270}},
          .times = {6, 12},
          .time_units = "hours since 2020-01-01",
          .calendar = "noleap"};
}

TEST(CfFile, HasNamedDimensionsWithCoordinates) {
  const test::TempDir dir;
  write_cf(dir / "out/fc.nc", small_forecast());
  const Hdf5Lock lock;
  const Hdf5Id file = hdf5_open(dir / "out/fc.nc");
  EXPECT_EQ(text_attribute(file, "Conventions"), "CF-1.8");
  for (const char* variable : {"t2m", "10m wind"})
    EXPECT_EQ(scales_of(file, variable), (std::vector<std::string>{"/time", "/lat", "/lon"}));
  EXPECT_EQ(values_of(file, "time", 2), (std::vector<double>{6, 12}));
  EXPECT_EQ(values_of(file, "lat", 3), (std::vector<double>{10, 20, 30}));
  EXPECT_EQ(values_of(file, "10m wind", 24)[12], 36) << "second step, second channel";
  const std::map<std::string, std::string> units = {{"time", "hours since 2020-01-01"},
                                                    {"lat", "degrees_north"},
                                                    {"lon", "degrees_east"},
                                                    {"t2m", "K"},
                                                    {"10m wind", "<none>"}};
  for (const auto& [name, unit] : units) {
    const Hdf5Id dataset(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
    EXPECT_EQ(text_attribute(dataset, "units"), unit) << name;
    if (name.size() > 4 || name == "t2m") continue;
    EXPECT_EQ(text_attribute(dataset, "CLASS"), "DIMENSION_SCALE");
    EXPECT_EQ(text_attribute(dataset, "NAME"), name);
    const Hdf5Id uses(H5Aopen(dataset, "REFERENCE_LIST", H5P_DEFAULT), H5Aclose);
    const Hdf5Id space(H5Aget_space(uses), H5Sclose);
    EXPECT_EQ(H5Sget_simple_extent_npoints(space), 2) << "one entry per variable";
  }
  const Hdf5Id time(H5Dopen2(file, "time", H5P_DEFAULT), H5Dclose);
  EXPECT_EQ(text_attribute(time, "calendar"), "noleap");
}

TEST(CfFile, UnknownCoordinatesAreLeftOut) {
  const test::TempDir dir;
  CfFields forecast = small_forecast();
  forecast.fields = {.names = {"a", "b/c"}};
  forecast.times = {};
  write_cf(dir / "fc.nc", forecast);
  const Hdf5Lock lock;
  const Hdf5Id file = hdf5_open(dir / "fc.nc");
  EXPECT_EQ(scales_of(file, "b_c"), (std::vector<std::string>{"/step", "/y", "/x"}));
  EXPECT_EQ(values_of(file, "step", 2), (std::vector<double>{1, 2}));
  const Hdf5Id rows(H5Dopen2(file, "y", H5P_DEFAULT), H5Dclose);
  EXPECT_TRUE(contains(text_attribute(rows, "NAME"), "not a netCDF variable.         3"));
}

TEST(CfFile, NamesOfCoordinatesAndWrongPlacesAreRefused) {
  const test::TempDir dir;
  CfFields forecast = small_forecast();
  forecast.fields.names[1] = "lat";
  EXPECT_TRUE(contains(test::error_of([&] { write_cf(dir / "fc.nc", forecast); }),
                       "a channel is called \"lat\""));
  EXPECT_TRUE(contains(test::error_of([&] { write_cf("/proc/fc.nc", small_forecast()); }),
                       "cannot write /proc/fc.nc"));
  EXPECT_FALSE(std::filesystem::exists(dir / "fc.nc.part"));
}

}  // namespace
}  // namespace braid::data
