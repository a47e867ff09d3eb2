// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/check.h"

#include <gtest/gtest.h>

#include <limits>

#include "braid/data/make.h"
#include "data/field_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

TEST(CheckData, FindsNothingInGoodData) {
  test::TempDir dir;
  make_weather(dir.path(),
               {.channels = 2, .height = 8, .width = 16, .frames = 5, .train_years = 2});
  const CheckReport report = check_data(dir.path());
  EXPECT_TRUE(report.findings.empty()) << report.findings[0].problem;
  EXPECT_EQ(report.files, 4);
  EXPECT_EQ(report.frames, 20);
  EXPECT_EQ(report.shape, (std::vector<int64_t>{2, 8, 16}));
  EXPECT_GT(report.bytes, 20 * 2 * 8 * 16 * 4);
}

TEST(CheckData, FindsEveryKindOfDamage) {
  test::TempDir dir;
  std::vector<float> values(4 * 2 * 3 * 5, 1.0F);
  values[(2 * 2 + 1) * 15 + 7] = std::numeric_limits<float>::quiet_NaN();
  values[(3 * 2 + 0) * 15] = std::numeric_limits<float>::infinity();
  write_file(dir / "1990.h5", {{}});
  write_file(dir / "1991.h5", {{.values = values}});
  write_file(dir / "1993.h5", {{.dims = {4, 2, 3, 6}}});
  write_file(dir / "1994.h5", {{}});
  std::filesystem::resize_file(dir / "1994.h5", std::filesystem::file_size(dir / "1994.h5") - 50);
  write_file(dir / "1995.h5", {{.dims = {6, 2, 3, 5}}});
  write_file(dir / "1996.h5", {{.name = "other"}});
  write_file(dir / "last.h5", {{}});
  const CheckReport report = check_data(dir.path());
  std::string all, notes;
  for (const Finding& finding : report.findings)
    (finding.fatal ? all : notes) +=
        std::filesystem::path(finding.file).filename().string() + ": " + finding.problem + "\n";
  EXPECT_TRUE(contains(all,
                       "1991.h5: 1 missing value of channel 1 (0.29 %) in 1 file, the first in "
                       "frame 2"));
  EXPECT_TRUE(contains(all, "1991.h5: 1 infinite value of channel 0"));
  EXPECT_TRUE(contains(all, "year 1992 is missing"));
  EXPECT_TRUE(contains(all, "1993.h5: fields of [2, 3, 6], those before are [2, 3, 5]"));
  EXPECT_TRUE(contains(all, "1994.h5 is a truncated HDF5 file"));
  EXPECT_TRUE(contains(all, "1996.h5 has no dataset fields"));
  EXPECT_TRUE(contains(notes, "1995.h5: 6 frames, most files have 4"));
  EXPECT_TRUE(contains(notes, "last.h5: its name does not end in a year"));
  EXPECT_EQ(report.findings.size(), 8U) << all << notes;
  EXPECT_TRUE(contains(error_of([&] { check_data(dir / "none"); }), "cannot list"));
}

TEST(CheckData, OfVariables) {
  test::TempDir dir;
  std::vector<float> values(4 * 3 * 5, 1.0F);
  values[2 * 15] = std::numeric_limits<float>::quiet_NaN();
  write_file(dir / "1990.nc", {{.name = "u10", .dims = {4, 3, 5}},
                               {.name = "t2m", .dims = {4, 3, 5}, .values = values}});
  const FieldNames names{.variables = {"u10", "t2m"}};
  const CheckReport report = check_data(dir.path(), {.names = names});
  EXPECT_EQ(report.shape, (std::vector<int64_t>{2, 3, 5}));
  ASSERT_EQ(report.findings.size(), 1U);
  EXPECT_TRUE(contains(report.findings[0].problem, "1 missing value of t2m (1.7 %) in 1 file"));
  EXPECT_TRUE(report.findings[0].fatal);
  const CheckReport filled =
      check_data(dir / "1990.nc", {.names = names, .missing = Missing::fill});
  ASSERT_EQ(filled.findings.size(), 1U);
  EXPECT_FALSE(filled.findings[0].fatal);
}

}  // namespace
}  // namespace braid::data
