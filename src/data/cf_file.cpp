// SPDX-License-Identifier: BSD-3-Clause
// netCDF-4 is HDF5 with dimension scales. They are attributes (CLASS and NAME of a scale,
// DIMENSION_LIST of a variable, REFERENCE_LIST back), written here as the HDF5 library's high-level
// part does, so that this part need not be linked.
#include "braid/data/cf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "data/hdf5.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

struct TextAttribute {
  std::string name, value;
};

struct CfDimension {
  std::string name;
  int64_t length = 0;
  std::vector<double> values = {};  // empty: no coordinate
  std::vector<TextAttribute> attributes = {};
};

struct ScaleUse {  // an entry of REFERENCE_LIST
  hobj_ref_t dataset;
  int dimension;
};

std::vector<CfDimension> dimensions_of(const CfFields& given) {
  const at::Tensor& values = given.values;
  const std::vector<double>&lats = given.fields.latitudes, &lons = given.fields.longitudes;
  CfDimension step{"step", values.size(0), std::vector<double>(values.size(0))};
  std::iota(step.values.begin(), step.values.end(), 1);
  step.attributes = {{"long_name", "forecast step"}, {"units", "1"}};
  if (!given.times.empty())
    step = {"time",
            values.size(0),
            given.times,
            {{"standard_name", "time"},
             {"units", given.time_units},
             {"calendar", given.calendar.empty() ? "standard" : given.calendar},
             {"axis", "T"}}};
  CfDimension rows{"y", values.size(2)}, columns{"x", values.size(3)};
  if (!lats.empty())
    rows = {"lat",
            values.size(2),
            lats,
            {{"standard_name", "latitude"}, {"units", "degrees_north"}, {"axis", "Y"}}};
  if (!lons.empty())
    columns = {"lon",
               values.size(3),
               lons,
               {{"standard_name", "longitude"}, {"units", "degrees_east"}, {"axis", "X"}}};
  return {step, rows, columns};
}

// Slashes would be folders of the file.
std::string variable_name(std::string name) {
  std::ranges::replace(name, '/', '_');
  return name;
}

void check_cf_names(const CfFields& given, const std::vector<CfDimension>& dimensions) {
  for (const std::string& name : given.fields.names)
    if (name.empty() ||
        std::ranges::find(dimensions, variable_name(name), &CfDimension::name) != dimensions.end())
      throw ConfigError({.what = fmt::format("a channel is called \"{}\"", name),
                         .why = "this is the name of a coordinate of the netCDF file, or no name",
                         .fix = "name the channels otherwise with data.names, or write .npy"});
}

class CfWriter {
 public:
  explicit CfWriter(fs::path file) : file_(std::move(file)), part_(file_.string() + ".part") {}
  ~CfWriter() {
    std::error_code ignored;
    fs::remove(part_, ignored);
  }
  CfWriter(const CfWriter&) = delete;
  CfWriter& operator=(const CfWriter&) = delete;

  void write(const CfFields& given);

 private:
  void must(bool good) const {
    if (!good) throw_storage("write", file_, errno != 0 ? errno : EIO);
  }
  Hdf5Id create() const;
  void add_text(hid_t object, const TextAttribute& attribute) const;
  void add_dimension(hid_t file, const CfDimension& dimension, int number) const;
  hobj_ref_t reference(hid_t file, const std::string& name) const;
  void add_variable(hid_t file, const CfFields& given, int64_t channel) const;
  void tie(hid_t file, hid_t variable, const std::vector<CfDimension>& dimensions) const;
  void list_uses(hid_t file, const CfDimension& dimension, int place) const;
  std::string text_of_dimension(const CfDimension& dimension) const;

  fs::path file_, part_;
  std::vector<CfDimension> dimensions_;
  std::vector<std::string> variables_;
};

Hdf5Id CfWriter::create() const {
  const Hdf5Id creation(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
  H5Pset_link_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  H5Pset_attr_creation_order(creation, H5P_CRT_ORDER_TRACKED | H5P_CRT_ORDER_INDEXED);
  return {H5Fcreate(part_.c_str(), H5F_ACC_TRUNC, creation, H5P_DEFAULT), H5Fclose};
}

void CfWriter::add_text(hid_t object, const TextAttribute& attribute) const {
  const Hdf5Id type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type, attribute.value.size() + 1);
  const Hdf5Id scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id made(
      H5Acreate2(object, attribute.name.c_str(), type, scalar, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  must(made && H5Awrite(made, type, attribute.value.c_str()) >= 0);
}

// A dimension without a coordinate is an empty dataset under a name that netCDF knows.
std::string CfWriter::text_of_dimension(const CfDimension& dimension) const {
  return dimension.values.empty()
             ? fmt::format("This is a netCDF dimension but not a netCDF variable.{:>10}",
                           dimension.length)
             : dimension.name;
}

void CfWriter::add_dimension(hid_t file, const CfDimension& dimension, int number) const {
  const hsize_t length = static_cast<hsize_t>(dimension.length);
  const Hdf5Id space(H5Screate_simple(1, &length, nullptr), H5Sclose);
  const bool bare = dimension.values.empty();
  const Hdf5Id scale(
      H5Dcreate2(file, dimension.name.c_str(), bare ? H5T_IEEE_F32BE : H5T_IEEE_F64LE, space,
                 H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  must(static_cast<bool>(scale));
  if (!bare)
    must(H5Dwrite(scale, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                  dimension.values.data()) >= 0);
  add_text(scale, {"CLASS", "DIMENSION_SCALE"});
  add_text(scale, {"NAME", text_of_dimension(dimension)});
  for (const TextAttribute& attribute : dimension.attributes) add_text(scale, attribute);
  const Hdf5Id scalar(H5Screate(H5S_SCALAR), H5Sclose);
  const Hdf5Id id(
      H5Acreate2(scale, "_Netcdf4Dimid", H5T_STD_I32LE, scalar, H5P_DEFAULT, H5P_DEFAULT),
      H5Aclose);
  must(id && H5Awrite(id, H5T_NATIVE_INT, &number) >= 0);
}

hobj_ref_t CfWriter::reference(hid_t file, const std::string& name) const {
  hobj_ref_t made{};
  must(H5Rcreate(&made, file, name.c_str(), H5R_OBJECT, -1) >= 0);
  return made;
}

void CfWriter::tie(hid_t file, hid_t variable, const std::vector<CfDimension>& dimensions) const {
  std::vector<hobj_ref_t> scales;
  std::vector<hvl_t> lists;
  for (const CfDimension& dimension : dimensions) scales.push_back(reference(file, dimension.name));
  for (hobj_ref_t& scale : scales) lists.push_back({1, &scale});
  const hsize_t rank = lists.size();
  const Hdf5Id type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose);
  const Hdf5Id space(H5Screate_simple(1, &rank, nullptr), H5Sclose);
  const Hdf5Id made(H5Acreate2(variable, "DIMENSION_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT),
                    H5Aclose);
  must(made && H5Awrite(made, type, lists.data()) >= 0);
}

void CfWriter::add_variable(hid_t file, const CfFields& given, int64_t channel) const {
  std::vector<hsize_t> sizes;
  for (const CfDimension& dimension : dimensions_)
    sizes.push_back(static_cast<hsize_t>(dimension.length));
  const Hdf5Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                     H5Sclose);
  const std::string& name = variables_[static_cast<size_t>(channel)];
  const Hdf5Id variable(
      H5Dcreate2(file, name.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
      H5Dclose);
  const at::Tensor values = given.values.select(1, channel).to(at::kCPU, at::kFloat).contiguous();
  must(variable && H5Dwrite(variable, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                            values.const_data_ptr<float>()) >= 0);
  tie(file, variable, dimensions_);
  const auto& units = given.fields.units;
  if (const auto at = static_cast<size_t>(channel); at < units.size() && !units[at].empty())
    add_text(variable, {"units", units[at]});
  add_text(variable, {"long_name", given.fields.names[static_cast<size_t>(channel)]});
}

// Which variables have this dimension, at which place of theirs.
void CfWriter::list_uses(hid_t file, const CfDimension& dimension, int place) const {
  std::vector<ScaleUse> uses;
  for (const std::string& name : variables_) uses.push_back({reference(file, name), place});
  const Hdf5Id type(H5Tcreate(H5T_COMPOUND, sizeof(ScaleUse)), H5Tclose);
  H5Tinsert(type, "dataset", HOFFSET(ScaleUse, dataset), H5T_STD_REF_OBJ);
  H5Tinsert(type, "dimension", HOFFSET(ScaleUse, dimension), H5T_NATIVE_INT);
  const hsize_t count = uses.size();
  const Hdf5Id space(H5Screate_simple(1, &count, nullptr), H5Sclose);
  const Hdf5Id scale(H5Dopen2(file, dimension.name.c_str(), H5P_DEFAULT), H5Dclose);
  const Hdf5Id made(H5Acreate2(scale, "REFERENCE_LIST", type, space, H5P_DEFAULT, H5P_DEFAULT),
                    H5Aclose);
  must(made && H5Awrite(made, type, uses.data()) >= 0);
}

void CfWriter::write(const CfFields& given) {
  dimensions_ = dimensions_of(given);
  check_cf_names(given, dimensions_);
  for (const std::string& name : given.fields.names) variables_.push_back(variable_name(name));
  if (file_.has_parent_path()) make_dirs(file_.parent_path());
  {
    const Hdf5Lock lock;
    errno = 0;
    Hdf5Id file = create();
    must(static_cast<bool>(file));
    add_text(file, {"Conventions", "CF-1.8"});
    for (size_t i = 0; i < dimensions_.size(); ++i)
      add_dimension(file, dimensions_[i], static_cast<int>(i));
    for (int64_t channel = 0; channel < given.values.size(1); ++channel)
      add_variable(file, given, channel);
    for (size_t i = 0; i < dimensions_.size(); ++i)
      list_uses(file, dimensions_[i], static_cast<int>(i));
    must(file.reset() >= 0);
  }
  rename_durably(part_, file_);
}

}  // namespace

void write_cf(const fs::path& file, const CfFields& forecast) { CfWriter(file).write(forecast); }

}  // namespace braid::data
