// SPDX-License-Identifier: BSD-3-Clause
// Files that are not what they seem: other formats, values in other files, shapes of any size.
#include "data/foreign.h"

#include <gtest/gtest.h>

#include <fstream>

#include "braid/data/arrays.h"
#include "braid/data/check.h"
#include "braid/data/npy.h"
#include "braid/data/stats.h"
#include "data/field_file.h"
#include "data/field_fixture.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::data {
namespace {

using test::contains;
using test::error_of;

void write_bytes(const std::filesystem::path& file, std::string bytes) {
  bytes.resize(100, '\0');
  std::ofstream(file, std::ios::binary) << bytes;
}

TEST(ForeignFormats, NameTheCommandThatConvertsThem) {
  test::TempDir dir;
  const auto text_of = [](const std::filesystem::path& file) {
    return error_of([&] { field_stats(file.string()); });
  };
  for (const char version : {'\x01', '\x02', '\x05'}) {
    write_bytes(dir / "a.nc", std::string("CDF") + version);
    EXPECT_TRUE(contains(text_of(dir / "a.nc"), "a.nc is a netCDF-3 file"));
    EXPECT_TRUE(contains(text_of(dir / "a.nc"), "nccopy -k nc4 " + (dir / "a.nc").string()));
  }
  write_bytes(dir / "b.grib", "GRIB");
  EXPECT_TRUE(contains(text_of(dir / "b.grib"), "cdo -f nc4 copy " + (dir / "b.grib").string()));
  EXPECT_TRUE(contains(error_of([&] { read_array(dir / "b.grib"); }), "is a GRIB file"));
  EXPECT_TRUE(contains(check_data(dir / "a.nc").findings.at(0).problem, "convert it: nccopy"));
  std::filesystem::create_directories(dir / "only/era5.zarr");
  std::ofstream(dir / "only/era5.zarr/.zgroup") << "{}";
  EXPECT_TRUE(contains(text_of(dir / "only"), "era5.zarr is a Zarr folder"));
  EXPECT_TRUE(contains(text_of(dir / "only/era5.zarr"), "xarray.open_zarr"));
  EXPECT_TRUE(contains(error_of([&] { check_data(dir / "only"); }), "is a Zarr folder"));
}

std::vector<float> first_frame(const FieldFile& file) {
  std::vector<float> out(30);
  file.read({.channels = 2, .rows = 3, .cols = 5}, out.data());
  return out;
}

// The offset is that of another file: the bytes at that place of this one are something else.
TEST(ForeignValues, BehindALinkAreReadFromTheirFile) {
  test::TempDir dir;
  write_file(dir / "b.data", {{}});
  write_file(dir / "a.h5",
             {{.name = "other", .dims = {10'000}, .values = std::vector<float>(10'000, -555)}});
  {
    const Hdf5Lock lock;
    const Hdf5Id file(H5Fopen((dir / "a.h5").c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose);
    ASSERT_GE(H5Lcreate_external("b.data", "fields", file, "fields", H5P_DEFAULT, H5P_DEFAULT), 0);
  }
  const FieldFile file(dir / "a.h5", {});
  EXPECT_FALSE(file.direct());
  EXPECT_EQ(first_frame(file), field_values({1, 2, 3, 5}));
}

// A dataset of which only the shape is there, or whose values lie in another file.
void write_shape(const std::filesystem::path& file, const std::vector<hsize_t>& dims,
                 const char* values = nullptr) {
  const Hdf5Lock lock;
  const Hdf5Id opened(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  const Hdf5Id space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                     H5Sclose);
  const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
  if (values != nullptr) H5Pset_external(creation, values, 0, 120);
  const Hdf5Id dataset(
      H5Dcreate2(opened, "fields", H5T_IEEE_F32LE, space, H5P_DEFAULT, creation, H5P_DEFAULT),
      H5Dclose);
  ASSERT_TRUE(static_cast<bool>(dataset));
}

TEST(ForeignValues, OfAnExternalFileLieBesideIt) {
  test::TempDir dir;
  std::filesystem::create_directory(dir / "in");
  const auto values = field_values({1, 2, 3, 5});
  for (const char* at : {"in/raw.bin", "raw.bin"})
    std::ofstream(dir / at, std::ios::binary)
        .write(reinterpret_cast<const char*>(values.data()), 120);
  write_shape(dir / "in/a.h5", {1, 2, 3, 5}, "raw.bin");
  EXPECT_EQ(first_frame(FieldFile(dir / "in/a.h5", {})), values);
  for (const std::string& outside : {std::string("../raw.bin"), (dir / "raw.bin").string()}) {
    write_shape(dir / "in/a.h5", {1, 2, 3, 5}, outside.c_str());
    EXPECT_TRUE(contains(error_of([&] { FieldFile(dir / "in/a.h5", {}); }),
                         "keeps its values in " + outside + ", outside of the folder"));
  }
}

TEST(ForeignShapes, AreFoundBeforeTheirValuesAreRead) {
  test::TempDir dir;
  const auto problem = [&](std::vector<hsize_t> dims) {
    write_shape(dir / "1990.h5", dims);
    const CheckReport report = check_data(dir / "1990.h5");
    return report.findings.empty() ? "" : report.findings[0].problem;
  };
  EXPECT_TRUE(contains(problem({100'000, 20, 1440, 1440}), "no value was ever written into it"));
  EXPECT_TRUE(contains(problem({0, 2, 8, 8}), "is empty: its shape is [0, 2, 8, 8]"));
  EXPECT_TRUE(contains(problem({4, 2, 0, 8}), "is empty: its shape is [4, 2, 0, 8]"));
  EXPECT_TRUE(contains(problem({1, 2, 1 << 24, 1 << 24}), "of [16777216, 16777216]: 2.00 PiB"));
  EXPECT_TRUE(contains(error_of([&] { read_array(dir / "1990.h5"); }), "does not fit the"));
}

TEST(ForeignShapes, OfNpyFilesAreComparedWithTheFile) {
  test::TempDir dir;
  const auto text_of = [&](const std::string& shape) {
    std::string head = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
    head.resize(117, ' ');
    head += '\n';
    std::ofstream(dir / "a.npy", std::ios::binary)
        << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(head.size()) << '\0' << head;
    return error_of([&] { read_npy(dir / "a.npy"); });
  };
  for (const char* shape : {"(9223372036854775807,)", "(4294967296, 4294967296)",
                            "(0, 9223372036854775807, 9223372036854775807)"})
    EXPECT_TRUE(contains(text_of(shape), "is larger than any file")) << shape;
  EXPECT_TRUE(contains(text_of("(12345678901234567890123,)"), "larger than 64 bits hold"));
  EXPECT_TRUE(contains(text_of("(1099511627776,)"), "4398046511104 are needed"));
}

TEST(ForeignShapes, OfManyDatasetsAreNotAllNamed) {
  test::TempDir dir;
  std::vector<DatasetFixture> many;
  for (int i = 0; i < 300; ++i)
    many.push_back({.name = "field" + std::to_string(i), .dims = {1, 1, 1, 1}});
  write_file(dir / "a.h5", many);
  const std::string text = error_of([&] { FieldFile(dir / "a.h5", {}); });
  EXPECT_TRUE(contains(text, "and 288 more"));
  EXPECT_LT(text.size(), 1000U);
}

}  // namespace
}  // namespace braid::data
