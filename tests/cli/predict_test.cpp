// SPDX-License-Identifier: BSD-3-Clause
// What `braid predict` writes and refuses.
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "braid/data/arrays.h"
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

}  // namespace
}  // namespace braid::test
