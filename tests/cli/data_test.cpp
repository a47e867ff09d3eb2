// SPDX-License-Identifier: BSD-3-Clause
// braid data: made-up data, what is wrong with given ones, their statistics.
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include <cmath>

#include "braid/data/arrays.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

TEST_F(Cli, DataMakeAndCheck) {
  make_weather();
  const Outcome good = braid_run({"data", "check", at("weather/train")});
  EXPECT_EQ(good.code, 0) << good.out;
  EXPECT_TRUE(contains(good.out, "1 file, 12 frames of [3, 8, 16]"));
  EXPECT_EQ(braid_run({"data", "check", at("weather/train/1990.h5")}).out, good.out);
  EXPECT_EQ(
      braid_run({"data", "make", "slices", at("s"), "--shape", "3,16,32", "--days", "3"}).code, 0);
  EXPECT_EQ(braid_run({"data", "check", at("s"), "--json"}).code, 0);
  EXPECT_EQ(
      braid_run({"data", "make", "tokens", at("t.bin"), "--tokens", "500", "--vocabulary", "32"})
          .code,
      0);
  EXPECT_EQ(fs::file_size(dir / "t.bin"), 1024u + 2 * 500u);
  fs::resize_file(dir / "weather/train/1990.h5",
                  fs::file_size(dir / "weather/train/1990.h5") - 100);
  const Outcome bad = braid_run({"data", "check", at("weather/train")});
  EXPECT_EQ(bad.code, static_cast<int>(Exit::data));
  EXPECT_TRUE(contains(bad.out, "truncated"));
}

TEST_F(Cli, StatisticsOfOwnDataAreThoseThatTrainingTakes) {
  make_weather();
  const Outcome table = braid_run({"data", "stats", at("weather/train")});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_TRUE(contains(table.out, "1 file, 12 frames of [3, 8, 16]"));
  EXPECT_TRUE(contains(table.out, "--out DIR writes them"));
  const Outcome written = braid_run({"data", "stats", at("weather/train"), "--out", at("own")});
  EXPECT_TRUE(contains(written.out, "data.stds=" + at("own/global_stds.npy")));
  const auto trained = [&](const Words& more) { return json_of(train("vit", more))["metrics"]; };
  EXPECT_EQ(
      trained({"--json", "--set", "data.means=" + at("own/global_means.npy"), "--set",
               "data.stds=" + at("own/global_stds.npy"), "--set", "run.dir=" + at("own/run")}),
      trained({"--json"}));
}

TEST_F(Cli, StatisticsSayWhatIsMissingOrConstant) {
  make_weather();
  const at::Tensor fields = data::read_array(at("weather/train/1990.h5"));
  fields.select(1, 1).fill_(5);
  fields[3][2][1][1].fill_(std::nan(""));
  data::write_array(at("weather/train/1990.h5"), fields);
  const Outcome done = braid_run({"data", "stats", at("weather/train")});
  EXPECT_TRUE(contains(done.out, "note: channel 1 is 5 everywhere"));
  EXPECT_TRUE(contains(done.out, "note: channel 2: the missing values are left out"));
}

}  // namespace
}  // namespace braid::test
