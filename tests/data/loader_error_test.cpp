// SPDX-License-Identifier: BSD-3-Clause
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>

#include "braid/core/accelerator.h"
#include "braid/data/loader.h"
#include "braid/data/options.h"
#include "data/counting_source.h"
#include "data/field_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

TEST(LoaderError, ReachesTheCallerWithFileAndSample) {
  for (int64_t workers : {0, 1, 4}) {
    auto source = std::make_shared<CountingSource>(12);
    source->bad = 6;
    Loader loader(source, {.global_batch = 3, .shuffle = false, .workers = workers});
    EXPECT_TRUE(loader.next());
    EXPECT_TRUE(loader.next());
    for (int again = 0; again < 2; ++again) {
      const std::string text = error_of([&] { loader.next(); });
      EXPECT_TRUE(contains(text, "cannot read made-up.h5")) << workers;
      EXPECT_TRUE(contains(text, "sample 6: made-up.h5, frame 6"));
    }
  }
}

TEST(LoaderError, IsADataErrorWithItsExitCode) {
  auto source = std::make_shared<CountingSource>(4);
  source->bad = 0;
  Loader loader(source, {.global_batch = 4, .shuffle = false, .workers = 2});
  EXPECT_THROW(loader.next(), DataError);
}

TEST(LoaderError, NamesThePlaceOfANan) {
  auto source = std::make_shared<CountingSource>(8);
  source->nan = 5;
  Loader blind(source, {.global_batch = 4, .shuffle = false, .workers = 2});
  EXPECT_TRUE(blind.next());
  EXPECT_TRUE(blind.next());
  Loader loader(source, {.global_batch = 4, .shuffle = false, .workers = 2, .check_finite = true});
  EXPECT_TRUE(loader.next());
  const std::string text = error_of([&] { loader.next(); });
  EXPECT_TRUE(
      contains(text, "NaN in sample 5 (made-up.h5, frame 5): input, channel 1, row 0, column 1"));
  EXPECT_TRUE(contains(text, "braid data check"));
}

TEST(LoaderError, LeavesADestructorThatDoesNotHang) {
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 20; ++round) {
    auto source = std::make_shared<CountingSource>(1000);
    source->slow = true;
    if (round % 2 == 0) source->bad = 3;
    Loader loader(source, {.global_batch = 100, .shuffle = false, .workers = 4, .queue = 8});
    if (round % 4 == 1) loader.next();
    if (round % 4 == 2) EXPECT_THROW(loader.next(), DataError);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(LoaderError, SaysThatAFileShrankWhileItWasRead) {
  test::TempDir dir;
  write_file(dir / "1990.h5", {{.dims = {6, 2, 3, 5}}});
  DataOptions options;
  options.kind = Kind::frames;
  options.train = dir.path();
  const auto source = open_source(options, Split::train, 0);
  std::filesystem::resize_file(dir / "1990.h5", std::filesystem::file_size(dir / "1990.h5") - 60);
  Loader loader(source, {.global_batch = 5, .shuffle = false, .workers = 2});
  const std::string text = error_of([&] { loader.next(); });
  EXPECT_TRUE(contains(text, "the file ends there"));
  EXPECT_TRUE(contains(text, "1990.h5, frame 4"));
}

TEST(LoaderError, ComplainsOfAGpuThatIsNotThere) {
  if (accelerator() != nullptr) GTEST_SKIP() << "there is a GPU";
  const std::string text =
      error_of([] { Loader(std::make_shared<CountingSource>(4), {.device = 0}); });
  EXPECT_TRUE(contains(text, "batches are to go to GPU 0, but there is none"));
}

}  // namespace
}  // namespace braid::data
