// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <thread>

#include "braid/core/fs.h"
#include "data/field_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

constexpr Slab box{
    .frame = 2, .channel = 1, .channels = 1, .row = 1, .rows = 2, .col = 2, .cols = 3};

std::vector<float> read_box(const FieldFile& file, const Slab& slab = box,
                            const Scaling& scaling = {}) {
  std::vector<float> out(static_cast<size_t>(slab.channels * slab.rows * slab.cols));
  file.read(slab, out.data(), scaling);
  return out;
}

const std::vector<float> expected_box = {2112, 2113, 2114, 2122, 2123, 2124};

TEST(FieldFile, ReadsOnlyTheBytesOfTheSlab) {
  test::TempDir dir;
  write_file(dir / "a.h5", {{}});
  const FieldFile file(dir / "a.h5", {});
  EXPECT_TRUE(file.direct());
  EXPECT_EQ(file.shape(), (FieldShape{4, 2, 3, 5}));
  EXPECT_EQ(read_box(file), expected_box);
  EXPECT_EQ(file.bytes_read(), 6 * 4);
  const auto all = read_box(file, {.frame = 3, .channels = 2, .rows = 3, .cols = 5});
  EXPECT_EQ(all.front(), 3000);
  EXPECT_EQ(all.back(), 3124);
}

TEST(FieldFile, ReadsEveryTypeAndLayoutAlike) {
  test::TempDir dir;
  write_file(dir / "f8.h5", {{.type = H5T_IEEE_F64LE}});
  write_file(dir / "big.h5", {{.type = H5T_IEEE_F32BE}});
  write_file(dir / "i2.h5", {{.type = H5T_STD_I16LE}});
  write_file(dir / "gzip.h5", {{.chunk = {1, 1, 3, 5}}});
  write_file(dir / "gzip8.h5", {{.type = H5T_IEEE_F64LE, .chunk = {2, 2, 2, 2}}});
  for (const char* name : {"f8", "big", "i2", "gzip", "gzip8"}) {
    const FieldFile file(dir / (std::string(name) + ".h5"), {});
    EXPECT_EQ(read_box(file), expected_box) << name;
    EXPECT_EQ(file.direct(), std::string(name) == "f8") << name;
  }
}

TEST(FieldFile, ScalesByChannel) {
  test::TempDir dir;
  write_file(dir / "a.h5", {{}});
  write_file(dir / "z.h5", {{.chunk = {1, 1, 3, 5}}});
  const Scaling scaling{{0, 2000}, {1, 10}};
  for (const char* name : {"a.h5", "z.h5"}) {
    const auto out = read_box(FieldFile(dir / name, {}), box, scaling);
    for (size_t i = 0; i < out.size(); ++i)
      EXPECT_EQ(out[i], (expected_box[i] - 2000.0F) / 10.0F) << name;
  }
}

TEST(FieldFile, TakesNetcdfVariablesAsChannelsAndUnpacksThem) {
  test::TempDir dir;
  const std::vector<hsize_t> dims = {4, 3, 5};
  write_file(dir / "a.nc",
             {{.name = "t2m", .dims = dims},
              {.name = "u10",
               .dims = dims,
               .type = H5T_STD_I16LE,
               .chunk = {1, 3, 5},
               .attributes = {{"scale_factor", 0.5}, {"add_offset", 10}, {"_FillValue", 2012}}}});
  const FieldFile file(dir / "a.nc", {.variables = {"t2m", "u10"}});
  EXPECT_EQ(file.shape(), (FieldShape{4, 2, 3, 5}));
  const auto out =
      read_box(file, {.frame = 2, .channels = 2, .row = 1, .rows = 1, .col = 2, .cols = 3});
  EXPECT_EQ(out[0], 2012);
  EXPECT_TRUE(std::isnan(out[3])) << "a missing value";
  EXPECT_EQ(out[4], 2013 * 0.5F + 10);
  const auto scaled =
      read_box(file, {.frame = 2, .channels = 2, .row = 1, .rows = 1, .col = 2, .cols = 3},
               {{2010, 1000}, {2, 4}});
  EXPECT_EQ(scaled[0], 1);
  EXPECT_EQ(scaled[4], (2013 * 0.5F + 10 - 1000) / 4);
}

TEST(FieldFile, IsReadByManyThreadsAtOnce) {
  test::TempDir dir;
  write_file(dir / "a.h5", {{.dims = {32, 2, 3, 5}}});
  write_file(dir / "z.h5", {{.dims = {32, 2, 3, 5}, .chunk = {1, 2, 3, 5}}});
  for (const char* name : {"a.h5", "z.h5"}) {
    const FieldFile file(dir / name, {});
    std::atomic<int> wrong = 0;
    std::vector<std::thread> threads;
    for (int n = 0; n < 4; ++n)
      threads.emplace_back([&, n] {
        for (int64_t t = n; t < 32; t += 4)
          if (read_box(file, {.frame = t, .rows = 3, .cols = 5})[7] != field_value(t, 0, 1, 2))
            ++wrong;
      });
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0) << name;
  }
}

TEST(FieldFile, SaysThatAFileIsTruncated) {
  test::TempDir dir;
  write_file(dir / "1990.h5", {{}});
  std::filesystem::resize_file(dir / "1990.h5", std::filesystem::file_size(dir / "1990.h5") - 100);
  const std::string text = error_of([&] { FieldFile(dir / "1990.h5", {}); });
  EXPECT_TRUE(contains(text, "1990.h5"));
  EXPECT_TRUE(contains(text, "truncated"));
  std::filesystem::resize_file(dir / "1990.h5", 10);
  EXPECT_TRUE(
      contains(error_of([&] { FieldFile(dir / "1990.h5", {}); }), "not a readable HDF5 file"));
}

// One flipped bit makes a side of 3 one of 2^58 + 3, whose bytes no number of 64 bits counts.
TEST(FieldFile, SaysThatAHeadIsDamaged) {
  test::TempDir dir;
  for (const std::vector<hsize_t>& chunk : {std::vector<hsize_t>{}, {1, 1, 3, 5}}) {
    write_file(dir / "1990.h5", {{.chunk = chunk}});
    std::string bytes = read_text(dir / "1990.h5");
    const uint64_t dims[] = {4, 2, 3, 5};
    const size_t at = bytes.find({reinterpret_cast<const char*>(dims), sizeof dims});
    ASSERT_NE(at, std::string::npos);
    bytes[at + 2 * 8 + 7] ^= 4;
    write_atomic(dir / "1990.h5", bytes);
    EXPECT_TRUE(contains(error_of([&] { FieldFile(dir / "1990.h5", {}); }),
                         "fields of [4, 2, 288230376151711747, 5] does not lie within"));
  }
}

TEST(FieldFile, NamesTheDatasetsWhenOneIsMissing) {
  test::TempDir dir;
  write_file(dir / "a.h5",
             {{}, {.name = "mask", .dims = {3, 5}, .values = std::vector<float>(15)}});
  const std::string text = error_of([&] { FieldFile(dir / "a.h5", {.dataset = "feilds"}); });
  EXPECT_TRUE(contains(text, "no dataset feilds"));
  EXPECT_TRUE(contains(text, "fields, mask"));
  EXPECT_TRUE(contains(text, "set data.dataset to fields"));
  EXPECT_TRUE(contains(error_of([&] { FieldFile(dir / "a.h5", {.dataset = "mask"}); }), "[3, 5]"));
}

TEST(FieldFile, RefusesVariablesOnDifferentGrids) {
  test::TempDir dir;
  write_file(dir / "a.nc", {{.name = "u", .dims = {4, 3, 5}}, {.name = "v", .dims = {4, 3, 6}}});
  const std::string text = error_of([&] { FieldFile(dir / "a.nc", {.variables = {"u", "v"}}); });
  EXPECT_TRUE(contains(text, "u and v"));
  EXPECT_TRUE(contains(text, "[4, 3, 5] and [4, 3, 6]"));
}

TEST(FieldFile, SaysThatItMayNotRead) {
  test::TempDir dir;
  write_file(dir / "a.h5", {{}});
  std::filesystem::permissions(dir / "a.h5", std::filesystem::perms::none);
  // chmod does not bind root, so root becomes nobody for a moment.
  const bool root = ::geteuid() == 0;
  if (root && ::seteuid(65534) != 0) GTEST_SKIP() << "cannot give up root's rights here";
  const std::string text = error_of([&] { FieldFile(dir / "a.h5", {}); });
  if (root) ASSERT_EQ(::seteuid(0), 0);
  EXPECT_TRUE(contains(text, "Permission denied"));
  EXPECT_TRUE(contains(text, "a.h5"));
}

}  // namespace
}  // namespace braid::data
