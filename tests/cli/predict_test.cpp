// SPDX-License-Identifier: BSD-3-Clause
// What `braid predict` writes and refuses.
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>

#include "braid/data/arrays.h"
#include "braid/data/cf_file.h"
#include "braid/data/npy.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

struct Predict : Cli {
  void SetUp() override {
    Cli::SetUp();
    make_weather();
    ASSERT_EQ(train("vit", {"--quiet", "--set", "data.names=[u,v,t2m]"}).code, 0);
  }
  Outcome predict(Words more) const {
    Words words = {"predict", at("vit")};
    words.insert(words.end(), more.begin(), more.end());
    return braid_run(words);
  }
  std::string year() const { return at("weather/test/1992.h5"); }
};

TEST_F(Predict, MissingValuesAreRefused) {
  const at::Tensor fields = data::read_array(year());
  fields[5][1][2].fill_(std::nan(""));
  data::write_array(year(), fields);
  expect_complaint(
      predict({"--input", year(), "--frame", "5", "--out", at("f.npy")}), Exit::data,
      {"1992.h5: 16 of 128 values of v in frame 5 are NaN or infinite", "another --frame"});
  EXPECT_FALSE(fs::exists(dir / "f.npy"));
  EXPECT_EQ(predict({"--input", year(), "--frame", "6", "--out", at("f.npy")}).code, 0);
}

TEST_F(Predict, EndingsThatCannotBeWrittenAreRefused) {
  for (const char* name : {"fc.zarr", "fc", "fc.grib"}) {
    expect_complaint(predict({"--input", year(), "--out", at(name)}), Exit::config,
                     {std::string("/") + name, ".npy, .h5, .hdf5 or .nc (netCDF-4)", "fc.nc"});
    EXPECT_FALSE(fs::exists(dir / name));
  }
}

TEST_F(Predict, NetcdfHasAVariablePerChannel) {
  const Words common = {"--input", year(), "--frame", "7", "--steps", "2", "--channel", "t2m"};
  for (const char* out : {"fc.npy", "fc.nc"}) {
    Words words = common;
    words.insert(words.end(), {"--out", at(out)});
    const Outcome done = predict(words);
    ASSERT_EQ(done.code, 0) << done.err;
  }
  const at::Tensor plain = data::read_npy(dir / "fc.npy");
  EXPECT_TRUE(data::read_array(dir / "fc.nc", {.dataset = "t2m"}).equal(plain.select(1, 2)));
  EXPECT_EQ(data::read_array(dir / "fc.nc", {.dataset = "step"}).numel(), 2);
  expect_complaint(predict({"--input", year(), "--channel", "t3m", "--out", at("g.npy")}),
                   Exit::config, {"--channel t3m", "u, v, t2m", "e.g. t2m"});
}

// A history of three variables on a region, rows from south to north.
data::CfFields regional_history() {
  data::CfFields history{
      .values = at::arange(6 * 3 * 8 * 16, c10::kFloat).mul(0.37).sin().view({6, 3, 8, 16}),
      .fields = {.names = {"t2m", "u10", "v10"}, .units = {"K", "m s-1", "m s-1"}},
      .times = {0, 6, 12, 18, 24, 30},
      .time_units = "hours since 2020-02-28",
      .calendar = "noleap"};
  for (int row = 0; row < 8; ++row) history.fields.latitudes.push_back(20 + 5 * row);
  for (int column = 0; column < 16; ++column) history.fields.longitudes.push_back(2.5 * column);
  return history;
}

TEST_F(Cli, ANetcdfModelForecastsFromNetcdf) {
  data::CfFields history = regional_history();
  data::write_cf(dir / "nc/a.nc", history);
  Words sets = {"--quiet"};
  for (const std::string& set :
       {"data.train=" + at("nc"), "data.valid=" + at("nc"), std::string("data.test="),
        std::string("data.means="), std::string("data.stds="),
        std::string("data.variables=[t2m,u10,v10]"), std::string("train.loss=mse")})
    sets.insert(sets.end(), {"--set", set});
  const Outcome trained = train("vit", sets);
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string log = text_of(dir / "vit/log.jsonl");
  for (const char* name : {"\"rmse_t2m\"", "\"cosine_v10\"", "\"persistence\""})
    EXPECT_TRUE(contains(log, name)) << "mse, too";
  const Words from = {"predict", at("vit"), "--input", at("nc/a.nc"), "--frame"};
  Words words = from;
  words.insert(words.end(), {"1", "--steps", "2", "--channel", "u10", "--out", at("fc.nc")});
  const Outcome done = braid_run(words);
  ASSERT_EQ(done.code, 0) << done.err;
  const data::FieldFrame last = data::read_frame(dir / "fc.nc", {.variables = {"t2m", "u10"}}, 1);
  EXPECT_EQ(last.frames, 2);
  EXPECT_EQ(last.time, 18) << "frame 1 is at 6 hours, and a step takes 6";
  EXPECT_EQ(last.time_units, "hours since 2020-02-28");
  EXPECT_EQ(last.calendar, "noleap");
  EXPECT_EQ(last.info.latitudes, history.fields.latitudes);
  EXPECT_EQ(last.info.longitudes, history.fields.longitudes);
  EXPECT_EQ(last.info.units, (Words{"K", "m s-1"}));
  history.values[5][2][7][15].fill_(std::nan(""));
  data::write_cf(dir / "nc/a.nc", history);
  words = from;
  words.insert(words.end(), {"5", "--out", at("g.nc")});
  expect_complaint(braid_run(words), Exit::data, {"a.nc: 1 of 128 values of v10 in frame 5"});
}

}  // namespace
}  // namespace braid::test
