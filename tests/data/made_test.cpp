// SPDX-License-Identifier: BSD-3-Clause
// Made-up data are not written over data of others, nor onto a disk that is too small.
#include "data/made.h"

#include <gtest/gtest.h>

#include <fstream>

#include "braid/core/error.h"
#include "braid/data/check.h"
#include "braid/data/make.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

const WeatherOptions small{.channels = 2, .height = 8, .width = 16, .frames = 3};

struct MadeFolder : testing::Test {
  std::string refusal(const WeatherOptions& options = small) {
    return error_of([&] { make_weather(dir.path(), options); });
  }
  void put(const std::string& name, const std::string& text = "mine") {
    fs::create_directories((dir / name).parent_path());
    std::ofstream(dir / name) << text;
  }
  test::TempDir dir;
};

TEST_F(MadeFolder, FilesOfOthersStayAsTheyAre) {
  put("train/1990.h5");
  const std::string text = refusal();
  EXPECT_TRUE(contains(text, "holds files that braid data make did not write: train/1990.h5"));
  EXPECT_TRUE(contains(text, "--force"));
  EXPECT_EQ(fs::file_size(dir / "train/1990.h5"), 4u);
  EXPECT_FALSE(fs::exists(dir / "made.json"));
  WeatherOptions forced = small;
  forced.force = true;
  make_weather(dir.path(), forced);
  EXPECT_GT(fs::file_size(dir / "train/1990.h5"), 4u);
}

TEST_F(MadeFolder, ItsOwnFilesAreWrittenAgainAndOldOnesGo) {
  WeatherOptions two = small;
  two.train_years = 2;
  make_weather(dir.path(), two);
  EXPECT_TRUE(fs::exists(dir / "train/1991.h5"));
  make_weather(dir.path(), small);
  EXPECT_FALSE(fs::exists(dir / "train/1991.h5")) << "it has become the year of validation";
  EXPECT_TRUE(check_data(dir.path()).findings.empty());
  put("train/1990.h5", "put here by somebody else");
  EXPECT_TRUE(contains(refusal(), "train/1990.h5"));
}

TEST_F(MadeFolder, WhatAKilledOneLeftIsItsOwn) {
  put("made.json", R"({"by": "braid data make", "files": {"train/1990.h5": null}})");
  put("train/1990.h5.part", "half");
  make_weather(dir.path(), small);
  EXPECT_TRUE(check_data(dir.path()).findings.empty());
}

TEST_F(MadeFolder, ALinkIsOfOthers) {
  const test::TempDir elsewhere;
  fs::create_directory_symlink(elsewhere.path(), dir / "train");
  EXPECT_TRUE(contains(refusal(), "did not write: train"));
}

TEST_F(MadeFolder, AHostileListIsNotOurs) {
  for (const char* text : {"[[[", "{}", R"({"by": "braid data make", "files": {"x": "y"}})",
                           R"({"by": "me", "files": {"train/1990.h5": null}})"}) {
    put("made.json", text);
    EXPECT_TRUE(contains(refusal(), "did not write: made.json")) << text;
  }
}

TEST_F(MadeFolder, AFileOfTokensIsReplacedOnlyIfItWasMade) {
  put("other.txt");
  make_tokens(dir / "a.bin", {.tokens = 10, .vocabulary = 9});
  make_tokens(dir / "b.bin", {.tokens = 10, .vocabulary = 9});
  make_tokens(dir / "a.bin", {.tokens = 20, .vocabulary = 9});
  make_tokens(dir / "b.bin", {.tokens = 20, .vocabulary = 9});
  put("c.bin");
  const std::string text = error_of([&] { make_tokens(dir / "c.bin", {.tokens = 10}); });
  EXPECT_TRUE(contains(text, "did not write: c.bin"));
  EXPECT_EQ(fs::file_size(dir / "c.bin"), 4u);
}

TEST_F(MadeFolder, TheDiskIsAskedFirst) {
  WeatherOptions huge;
  huge.train_years = 10'000;
  const std::string text = refusal(huge);
  EXPECT_TRUE(contains(text, "needs 275."));
  EXPECT_TRUE(contains(text, "10002 years of 1460 frames of [20, 360, 720]"));
  EXPECT_TRUE(contains(text, "--shape, --frames, --years"));
  EXPECT_TRUE(fs::is_empty(dir.path()));
  huge.frames = int64_t{1} << 62;
  EXPECT_TRUE(contains(refusal(huge), "are free on that disk"));
}

TEST_F(MadeFolder, NobodyIsAdvisedToMakeDataWhereSomeAre) {
  const auto advice = [&](const fs::path& where) { return or_make("look", "weather", where); };
  EXPECT_EQ(advice("/nope"), "look, or make some: braid data make weather /nope");
  EXPECT_EQ(advice("/"), "look");
  EXPECT_TRUE(contains(advice(dir.path()), "braid data make"));
  put("mine.grib");
  EXPECT_EQ(advice(dir.path()), "look");
  EXPECT_EQ(advice(dir / "mine.grib"), "look");
  const std::string text = error_of([&] { check_data(dir.path()); });
  EXPECT_EQ(text.find("data make"), std::string::npos) << text;
}

}  // namespace
}  // namespace braid::data
