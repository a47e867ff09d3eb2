// SPDX-License-Identifier: BSD-3-Clause
// Inputs and targets: every pair, never across a gap in time, and across files where time goes on.
#include "data/frame_pairs.h"

#include <gtest/gtest.h>

#include "data/calendar.h"
#include "data/netcdf_fixture.h"
#include "data/time_axis.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;
using Inputs = std::vector<int64_t>;

class PairsOfFrames : public testing::Test {
 protected:
  PairsOfFrames() {
    options_.kind = Kind::frames;
    options_.train = dir_.path();
    options_.variables = {"t2m"};
  }
  void timed(const char* name, std::vector<double> times,
             const std::string& units = "hours since 2000-01-01",
             const std::string& calendar = "") {
    auto time = time_dimension(std::move(times), units);
    if (!calendar.empty()) time.texts.emplace_back("calendar", calendar);
    write_netcdf(dir_ / name, {time, latitudes({10, 0}), longitudes({0, 90})},
                 {{.dims = {"time", "lat", "lon"}}});
  }
  Inputs inputs() const {
    const FieldFiles files(options_, Split::train);
    const FramePairs pairs(files, options_);
    Inputs all;
    for (int64_t i = 0; i < pairs.size(); ++i) all.push_back(pairs.input(i));
    return all;
  }
  test::TempDir dir_;
  DataOptions options_;
};

TEST_F(PairsOfFrames, AreAllOfAFileWithoutTimes) {
  options_.variables = {};
  write_file(dir_ / "1990.h5", {{.dims = {4, 2, 3, 5}}});
  write_file(dir_ / "1991.h5", {{.dims = {3, 2, 3, 5}}});
  EXPECT_EQ(inputs(), (Inputs{0, 1, 2, 4, 5})) << "frame 0 is an input, no frame comes twice";
  options_.step = 2;
  EXPECT_EQ(inputs(), (Inputs{0, 1, 4}));
  options_.step = 3;
  EXPECT_TRUE(contains(error_of([&] { inputs(); }), "1991.h5 has 3 frames"));
  EXPECT_TRUE(contains(error_of([&] { inputs(); }), "set data.step to at most 2"));
}

TEST_F(PairsOfFrames, DoNotSpanAGap) {
  timed("a.nc", {0, 6, 12, 412, 418, 424, 430});
  EXPECT_EQ(inputs(), (Inputs{0, 1, 3, 4, 5}));
  options_.step = 3;
  EXPECT_EQ(inputs(), (Inputs{3}));
  options_.step = 4;
  EXPECT_TRUE(contains(error_of([&] { inputs(); }), "by their times at most 4 follow each other"));
  options_.step = 1;
  options_.pairs = Pairs::reference;
  EXPECT_TRUE(contains(error_of([&] { inputs(); }), "a.nc has a gap in time after frame 2"));
}

TEST_F(PairsOfFrames, LeaveOutTimesThatComeTwiceOrBackwards) {
  timed("a.nc", {0, 6, 6, 12, 0, 6});
  EXPECT_EQ(inputs(), (Inputs{0, 2, 4}));
}

TEST_F(PairsOfFrames, GoOnInTheNextFileWhereTimeDoes) {
  timed("20000101.nc", {0}, "days since 2000-01-01");
  timed("20000102.nc", {24}, "hours since 2000-01-01");
  timed("20000103.nc", {0}, "days since 2000-01-03", "gregorian");
  timed("20000105.nc", {4}, "days since 2000-01-01");
  EXPECT_EQ(inputs(), (Inputs{0, 1})) << "days of one frame each; the fourth is absent";
}

TEST_F(PairsOfFrames, OfMonthsAndOtherCalendars) {
  timed("a.nc", {0, 31, 59, 90}, "days since 1990-01-01");
  EXPECT_EQ(inputs(), (Inputs{0, 1, 2})) << "months differ in length";
  timed("a.nc", {0, 1}, "days since 2000-02-27 12:00");
  timed("b.nc", {0}, "days since 2000-03-01 12:00");
  EXPECT_EQ(inputs(), (Inputs{0})) << "29 February is absent";
  timed("a.nc", {0, 1}, "days since 2000-02-27 12:00", "noleap");
  timed("b.nc", {0}, "days since 2000-03-01 12:00", "365_day");
  EXPECT_EQ(inputs(), (Inputs{0, 1})) << "there is none in this calendar";
}

TEST_F(PairsOfFrames, SayWhatOneFrameWithoutTimesLacks) {
  options_.variables = {};
  write_file(dir_ / "a.h5", {{.dims = {1, 2, 3, 5}}});
  const std::string text = error_of([&] { inputs(); });
  EXPECT_TRUE(contains(text, "a.h5 has 1 frame, too few for data.step = 1"));
  EXPECT_TRUE(contains(text, "write the files with a time coordinate"));
  options_.pairs = Pairs::reference;
  EXPECT_TRUE(contains(error_of([&] { inputs(); }), "set data.pairs to all"));
}

TEST(Calendars, CountTheDaysOfTheirOwn) {
  const auto days = [](Calendar kind, int64_t from, int64_t to) {
    return day_number(kind, to, 3, 1) - day_number(kind, from, 3, 1);
  };
  EXPECT_EQ(days(Calendar::standard, 1900, 2000), 36525);
  EXPECT_EQ(days(Calendar::julian, 1900, 2000), 36525);
  EXPECT_EQ(days(Calendar::julian, 1800, 1900), 36525);
  EXPECT_EQ(days(Calendar::proleptic_gregorian, 1800, 1900), 36524);
  EXPECT_EQ(days(Calendar::noleap, 1900, 2000), 36500);
  EXPECT_EQ(days(Calendar::all_leap, 1900, 2000), 36600);
  EXPECT_EQ(days(Calendar::days_360, 1900, 2000), 36000);
  EXPECT_EQ(
      day_number(Calendar::standard, 1582, 10, 15) - day_number(Calendar::standard, 1582, 10, 4),
      1);
}

TEST(TimeUnits, AreReadAsFilesWriteThem) {
  const auto seconds = [](const char* units, double value) {
    return parse_time_units(units, "")->seconds(value);
  };
  const double day = seconds("days since 2000-01-01", 0);
  EXPECT_EQ(seconds("hours since 1999-12-31 18:00:0.0", 6), day);
  EXPECT_EQ(seconds("Seconds since 2000-1-1T01:00:00Z", -3600), day);
  EXPECT_EQ(seconds("minutes since 2000-01-01 01:30:00 +01:30", 0), day);
  EXPECT_EQ(seconds("hours since 1999-12-31 18:00:00 -6:00", 0), day);
  EXPECT_FALSE(parse_time_units("fortnights since 2000-01-01", ""));
  EXPECT_FALSE(parse_time_units("days since the flood", ""));
  EXPECT_FALSE(parse_time_units("days since 2000-01-01", "lunar"));
  EXPECT_EQ(duration_text(21'600), "6 hours");
}

}  // namespace
}  // namespace braid::data
