// SPDX-License-Identifier: BSD-3-Clause
// Which years, months and days are absent, by the names of files and by their times.
#include <gtest/gtest.h>

#include "braid/data/check.h"
#include "data/file_dates.h"
#include "data/netcdf_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using Words = std::vector<std::string>;

Words absent(const Words& names) {
  std::vector<FileDate> dates;
  for (const std::string& name : names) dates.push_back(date_of(name).value());
  return absent_dates(dates);
}

TEST(FileDates, AreReadInEveryUsualForm) {
  EXPECT_EQ(date_of("era5/t2m_1990.nc"), (FileDate{1990, 0, 0}));
  EXPECT_EQ(date_of("199005.nc"), (FileDate{1990, 5, 0}));
  EXPECT_EQ(date_of("a_1990-05.nc"), (FileDate{1990, 5, 0}));
  EXPECT_EQ(date_of("a_19900517.nc"), (FileDate{1990, 5, 17}));
  EXPECT_EQ(date_of("1990_05_17.nc"), (FileDate{1990, 5, 17}));
  EXPECT_FALSE(date_of("last.nc"));
  EXPECT_FALSE(date_of("199013.nc"));
  EXPECT_FALSE(date_of("run17.nc"));
}

TEST(FileDates, ThatAreAbsentGiveOneLine) {
  EXPECT_EQ(absent({"1990", "1991", "1995"}), (Words{"years 1992 to 1994 are missing"}));
  EXPECT_EQ(absent({"201011", "201012", "201102"}), (Words{"month 2011-01 is missing"}));
  EXPECT_EQ(absent({"20110227", "20110228", "20110301", "20110303"}),
            (Words{"day 2011-03-02 is missing"}));
  EXPECT_EQ(absent({"20120228", "20120301"}), Words()) << "not every calendar has 29 February";
}

class CheckTimes : public testing::Test {
 protected:
  void timed(const char* name, std::vector<double> hours) {
    write_netcdf(dir_ / name,
                 {time_dimension(std::move(hours)), latitudes({10, 0}), longitudes({0, 90})},
                 {{.dims = {"time", "lat", "lon"}}});
  }
  std::vector<Finding> findings() const {
    return check_data(dir_.path(), {.names = {.variables = {"t2m"}}}).findings;
  }
  test::TempDir dir_;
};

TEST_F(CheckTimes, FindGapsWithinAndBetweenFiles) {
  timed("jan.nc", {0, 6, 12, 18});
  timed("zmar.nc", {1416, 1422, 1428, 1500});
  const auto found = findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_FALSE(found[0].fatal);
  EXPECT_TRUE(contains(found[0].file, "jan.nc"));
  EXPECT_TRUE(contains(found[0].problem, "a gap in time after frame 3, and 1 more such gaps"));
  EXPECT_TRUE(contains(found[0].problem, "the longest is 58.25 days, the usual step 6 hours"));
}

TEST_F(CheckTimes, FindDoublesAndDisorder) {
  timed("a.nc", {0, 6, 6, 12, 18});
  timed("b.nc", {6, 12, 18, 24, 30});
  const auto found = findings();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].fatal);
  EXPECT_EQ(found[0].problem, "the same time twice after frame 1");
  EXPECT_EQ(found[1].problem, "time runs backwards after frame 4");
}

TEST_F(CheckTimes, SayWhenUnitsAreUnknown) {
  write_netcdf(dir_ / "a.nc",
               {time_dimension({0, 1}, "fortnights since 2000-01-01"), latitudes({10, 0}),
                longitudes({0, 90})},
               {{.dims = {"time", "lat", "lon"}}});
  const auto found = findings();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(contains(found[0].problem, "not understood (units \"fortnights since 2000-01-01\""));
}

}  // namespace
}  // namespace braid::data
