// SPDX-License-Identifier: BSD-3-Clause
// Small netCDF-4 files: named dimensions with coordinates, and attributes of any kind, written by
// the HDF5 library as netCDF-4 lays them out.
#pragma once
#include "data/field_fixture.h"

namespace braid::data {

using Texts = std::vector<std::pair<std::string, std::string>>;

// A number of a type of the library, or several.
struct NumberAttribute {
  std::string name;
  std::vector<double> values;
  hid_t type = H5T_NATIVE_DOUBLE;
};

struct DimensionFixture {
  std::string name;
  hsize_t size = 0;
  std::vector<double> values = {};  // empty: a dimension without coordinates
  Texts texts = {};
};

struct VariableFixture {
  std::string name = "t2m";
  std::vector<std::string> dims = {};
  std::vector<float> values = {};  // empty: field_values
  hid_t type = -1;                 // on disk; -1: f4
  bool chunked = false;
  std::vector<NumberAttribute> numbers = {};
  Texts texts = {};
};

inline void add_text(hid_t object, const std::string& name, const std::string& text) {
  const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, text.size() + 1);
  const Hdf5Id scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id attribute(H5Acreate2(object, name.c_str(), type, scalar, H5P_DEFAULT, H5P_DEFAULT),
                         H5Aclose);
  ASSERT_GE(H5Awrite(attribute, type, text.c_str()), 0);
}

inline void add_numbers(hid_t object, const NumberAttribute& with) {
  const hsize_t count = with.values.size();
  const Hdf5Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Id attribute(
      H5Acreate2(object, with.name.c_str(), with.type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  ASSERT_GE(H5Awrite(attribute, H5T_NATIVE_DOUBLE, with.values.data()), 0);
}

inline void add_dimension(hid_t file, const DimensionFixture& with) {
  const int rank = with.size == 0 ? 0 : 1;  // a size of 0: a scalar variable
  const Hdf5Id space(rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &with.size, nullptr),
                     H5Sclose);
  const Hdf5Id dataset(H5Dcreate2(file, with.name.c_str(), H5T_IEEE_F64LE, space, H5P_DEFAULT,
                                  H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose);
  if (!with.values.empty()) {
    ASSERT_GE(
        H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, with.values.data()), 0);
  }
  for (const auto& [name, text] : with.texts) add_text(dataset, name, text);
  if (rank == 0) return;
  add_text(dataset, "CLASS", "DIMENSION_SCALE");
  add_text(dataset, "NAME",
           with.values.empty() ? "This is a netCDF dimension but not a netCDF variable.         3"
                               : with.name);
}

inline void add_dimension_list(hid_t file, hid_t dataset, const std::vector<std::string>& dims) {
  std::vector<hobj_ref_t> references(dims.size());
  std::vector<hvl_t> lists(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    H5Rcreate(&references[i], file, dims[i].c_str(), H5R_OBJECT, -1);
    lists[i] = {1, &references[i]};
  }
  const Hdf5Id type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose);
  const hsize_t rank = dims.size();
  const Hdf5Id space(H5Screate_simple(1, &rank, nullptr), H5Sclose);
  const Hdf5Id attribute(
      H5Acreate2(dataset, "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  ASSERT_GE(H5Awrite(attribute, type, lists.data()), 0);
}

inline void add_variable(hid_t file, const std::vector<DimensionFixture>& dimensions,
                         const VariableFixture& with) {
  DatasetFixture fixture{.name = with.name, .dims = {}, .values = with.values, .type = with.type};
  for (const std::string& name : with.dims)
    for (const DimensionFixture& dimension : dimensions)
      if (dimension.name == name) fixture.dims.push_back(dimension.size);
  if (with.chunked) fixture.chunk = fixture.dims;
  add_dataset(file, fixture);
  const Hdf5Id dataset(H5Dopen2(file, with.name.c_str(), H5P_DEFAULT), H5Dclose);
  add_dimension_list(file, dataset, with.dims);
  for (const NumberAttribute& number : with.numbers) add_numbers(dataset, number);
  for (const auto& [name, text] : with.texts) add_text(dataset, name, text);
}

inline void write_netcdf(const std::filesystem::path& path,
                         const std::vector<DimensionFixture>& dimensions,
                         const std::vector<VariableFixture>& variables) {
  const Hdf5Lock lock;
  const Hdf5Id file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  add_text(file, "_NCProperties", "version=2,netcdf=4.9.0,hdf5=1.10.8");
  for (const DimensionFixture& dimension : dimensions) add_dimension(file, dimension);
  for (const VariableFixture& variable : variables) add_variable(file, dimensions, variable);
}

inline DimensionFixture time_dimension(std::vector<double> hours,
                                       const std::string& units = "hours since 2000-01-01") {
  const hsize_t size = hours.size();
  return {.name = "time",
          .size = size,
          .values = std::move(hours),
          .texts = {{"units", units}, {"standard_name", "time"}}};
}
inline DimensionFixture latitudes(std::vector<double> degrees) {
  const hsize_t size = degrees.size();
  return {.name = "lat",
          .size = size,
          .values = std::move(degrees),
          .texts = {{"units", "degrees_north"}}};
}
inline DimensionFixture longitudes(std::vector<double> degrees) {
  const hsize_t size = degrees.size();
  return {.name = "lon",
          .size = size,
          .values = std::move(degrees),
          .texts = {{"units", "degrees_east"}}};
}

}  // namespace braid::data
