// SPDX-License-Identifier: BSD-3-Clause
// Names, units and coordinates of netCDF-4 files, and dimensions in any order.
#include "braid/data/field_info.h"

#include <gtest/gtest.h>

#include "braid/data/options.h"
#include "data/field_file.h"
#include "data/netcdf_fixture.h"
#include "data/time_axis.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;
using Words = std::vector<std::string>;
using Degrees = std::vector<double>;

class NetcdfInfo : public testing::Test {
 protected:
  std::vector<DimensionFixture> grid() {
    return {time_dimension({0, 6, 12, 18}), latitudes({60, 50, 40}),
            longitudes({0, 90, 180, 270, 360})};
  }
  std::filesystem::path file() const { return dir_ / "a.nc"; }
  test::TempDir dir_;
};

std::vector<float> frame_of(const FieldFile& file, int64_t frame) {
  const FieldShape& shape = file.shape();
  std::vector<float> out(static_cast<size_t>(shape.channels * shape.height * shape.width));
  file.read({.frame = frame, .channels = shape.channels, .rows = shape.height, .cols = shape.width},
            out.data());
  return out;
}

TEST_F(NetcdfInfo, NamesUnitsAndCoordinates) {
  write_netcdf(file(), grid(),
               {{.name = "t2m", .dims = {"time", "lat", "lon"}, .texts = {{"units", "K"}}},
                {.name = "u10", .dims = {"time", "lat", "lon"}, .chunked = true}});
  const FieldFile opened(file(), {.variables = {"u10", "t2m"}});
  EXPECT_EQ(opened.info().names, (Words{"u10", "t2m"}));
  EXPECT_EQ(opened.info().units, (Words{"", "K"}));
  EXPECT_EQ(opened.info().latitudes, (Degrees{60, 50, 40}));
  EXPECT_EQ(opened.info().longitudes, (Degrees{0, 90, 180, 270, 360}));
  EXPECT_EQ(opened.times().units, "hours since 2000-01-01");
  EXPECT_EQ(opened.times().seconds[3] - opened.times().seconds[0], 18 * 3600);

  DataOptions options;
  options.kind = Kind::frames;
  options.train = file();
  options.variables = {"t2m", "u10"};
  options.size = {2, 4};
  options.channels = 1;
  const FieldInfo info = open_source(options, Split::train, 0)->fields();
  EXPECT_EQ(info.names, (Words{"t2m"}));
  EXPECT_EQ(info.units, (Words{"K"}));
  EXPECT_EQ(info.latitudes, (Degrees{60, 50})) << "cut to data.size";
  EXPECT_EQ(info.longitudes, (Degrees{0, 90, 180, 270}));
}

TEST_F(NetcdfInfo, PlainFilesHaveNone) {
  write_file(dir_ / "a.h5", {{}});
  const FieldFile opened(dir_ / "a.h5", {});
  EXPECT_TRUE(opened.info().names.empty());
  EXPECT_TRUE(opened.info().latitudes.empty());
  EXPECT_EQ(opened.channel_name(1), "channel 1");
}

// The value of each point stays with its latitude and longitude, however the file orders them.
TEST_F(NetcdfInfo, OrdersOfDimensionsDoNotMatter) {
  const auto value = [](size_t t, size_t y, size_t x) {
    return field_value(static_cast<int64_t>(t), 0, static_cast<int64_t>(y),
                       static_cast<int64_t>(x));
  };
  const std::vector<std::string> names = {"time", "lat", "lon"};
  for (const std::vector<size_t>& order :
       {std::vector<size_t>{0, 1, 2}, {0, 2, 1}, {1, 2, 0}, {2, 1, 0}}) {
    const hsize_t sizes[] = {4, 3, 5};
    std::vector<float> values;
    std::vector<std::string> dims;
    for (const size_t dim : order) dims.push_back(names[dim]);
    size_t at[3] = {};
    for (at[order[0]] = 0; at[order[0]] < sizes[order[0]]; ++at[order[0]])
      for (at[order[1]] = 0; at[order[1]] < sizes[order[1]]; ++at[order[1]])
        for (at[order[2]] = 0; at[order[2]] < sizes[order[2]]; ++at[order[2]])
          values.push_back(value(at[0], at[1], at[2]));
    write_netcdf(file(), grid(), {{.dims = dims, .values = values}});
    const FieldFile opened(file(), {.variables = {"t2m"}});
    EXPECT_EQ(opened.shape(), (FieldShape{4, 1, 3, 5}));
    EXPECT_EQ(opened.info().latitudes, (Degrees{60, 50, 40}));
    std::vector<float> out(2 * 3);
    opened.read({.frame = 2, .row = 1, .rows = 2, .col = 2, .cols = 3}, out.data());
    for (size_t y = 0; y < 2; ++y)
      for (size_t x = 0; x < 3; ++x)
        EXPECT_EQ(out[y * 3 + x], value(2, y + 1, x + 2)) << dims[0] << dims[1] << dims[2];
  }
}

TEST_F(NetcdfInfo, LevelsAreChannels) {
  auto dimensions = grid();
  dimensions.push_back({.name = "level",
                        .size = 3,
                        .values = {1000, 850, 500},
                        .texts = {{"units", "hPa"}, {"positive", "down"}}});
  write_netcdf(file(), dimensions,
               {{.name = "t2m", .dims = {"time", "lat", "lon"}},
                {.name = "z", .dims = {"time", "level", "lat", "lon"}}});
  const FieldFile all(file(), {.variables = {"z", "t2m"}});
  EXPECT_EQ(all.info().names, (Words{"z_1000", "z_850", "z_500", "t2m"}));
  EXPECT_EQ(all.shape().channels, 4);
  const FieldFile some(file(), {.variables = {"t2m", "z"}, .levels = {500, 1000}});
  EXPECT_EQ(some.info().names, (Words{"t2m", "z_500", "z_1000"}));
  const auto out = frame_of(some, 1);
  EXPECT_EQ(out[0], field_value(1, 0, 0, 0));
  EXPECT_EQ(out[15], field_value(1, 2, 0, 0));
  EXPECT_EQ(out[30 + 7], field_value(1, 0, 1, 2));
  EXPECT_TRUE(contains(error_of([&] { FieldFile(file(), {.variables = {"z"}, .levels = {700}}); }),
                       "level has the values 1000, 850, 500 hPa"));
  EXPECT_TRUE(
      contains(error_of([&] { FieldFile(file(), {.variables = {"t2m"}, .levels = {500}}); }),
               "has no dimension of levels"));
}

TEST_F(NetcdfInfo, LevelsAndMapsAreNoFrames) {
  auto dimensions = grid();
  dimensions.push_back({.name = "depth", .size = 4, .values = {5, 10, 20, 50}});
  write_netcdf(file(), dimensions,
               {{.name = "so", .dims = {"depth", "lat", "lon"}},
                {.name = "mask", .dims = {"lat", "lon"}, .values = std::vector<float>(15)},
                {.name = "series", .dims = {"time", "depth"}, .values = std::vector<float>(16)}});
  const std::string levels = error_of([&] { FieldFile(file(), {.variables = {"so"}}); });
  EXPECT_TRUE(contains(levels, "(depth = 4, lat = 3, lon = 5): none of them is time"));
  EXPECT_TRUE(contains(levels, "levels and depths are channels, not frames"));
  EXPECT_TRUE(contains(error_of([&] { FieldFile(file(), {.variables = {"mask"}}); }),
                       "a field that has no time"));
  EXPECT_TRUE(contains(error_of([&] { FieldFile(file(), {.variables = {"series"}}); }),
                       "(time = 4, depth = 4): no map"));
}

TEST_F(NetcdfInfo, AScalarTimeMakesOneFrame) {
  std::vector<DimensionFixture> dimensions = {
      latitudes({60, 50, 40}),
      longitudes({0, 90, 180, 270, 360}),
      {.name = "time", .values = {24}, .texts = {{"units", "hours since 2000-01-01"}}}};
  const std::vector<float> values = field_values({1, 3, 5});
  write_netcdf(file(), dimensions,
               {{.dims = {"lat", "lon"}, .values = values, .texts = {{"coordinates", "time"}}},
                {.name = "orography", .dims = {"lat", "lon"}, .values = values}});
  EXPECT_TRUE(contains(error_of([&] { FieldFile(file(), {.variables = {"orography"}}); }),
                       "a field that has no time"));
  const FieldFile opened(file(), {.variables = {"t2m"}});
  EXPECT_EQ(opened.shape(), (FieldShape{1, 1, 3, 5}));
  EXPECT_EQ(opened.times().values, (Degrees{24}));
  EXPECT_EQ(frame_of(opened, 0), values);
}

TEST_F(NetcdfInfo, FilesThatAreTurnedRoundDoNotMix) {
  write_netcdf(dir_ / "a.nc", grid(), {{.dims = {"time", "lat", "lon"}}});
  auto turned = grid();
  turned[1] = latitudes({40, 50, 60});
  write_netcdf(dir_ / "b.nc", turned, {{.dims = {"time", "lat", "lon"}}});
  DataOptions options;
  options.kind = Kind::frames;
  options.train = dir_.path();
  options.variables = {"t2m"};
  EXPECT_TRUE(contains(error_of([&] { open_source(options, Split::train, 0); }),
                       "b.nc have different latitudes"));
}

}  // namespace
}  // namespace braid::data
