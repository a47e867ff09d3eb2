// SPDX-License-Identifier: BSD-3-Clause
#include "data/axes.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "data/hdf5_attributes.h"
#include "data/packing.h"

namespace braid::data {
namespace {

constexpr int64_t most_coordinates = 1 << 24;  // more are no coordinate of one dimension

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool listed(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

std::string name_of(const Hdf5Id& id) {
  std::array<char, 1024> text = {};
  if (H5Iget_name(id, text.data(), text.size()) <= 0) return "";
  std::string name(text.data());
  name.erase(0, name.rfind('/') + 1);
  constexpr std::string_view hidden = "_nc4_non_coord_";  // netCDF's prefix of clashing names
  if (name.starts_with(hidden)) name.erase(0, hidden.size());
  return name.starts_with("phony_dim_") ? "" : name;
}

// The dimension scales of a dataset, invalid where a dimension has none.
std::vector<Hdf5Id> scales_of(const Hdf5Id& dataset, size_t rank) {
  std::vector<Hdf5Id> scales(rank);
  if (rank == 1 && text_attribute(dataset, "CLASS") == "DIMENSION_SCALE") {
    scales[0] = Hdf5Id(H5Oopen(dataset, ".", H5P_DEFAULT), H5Oclose);
    return scales;
  }
  if (!has_attribute(dataset, "DIMENSION_LIST")) return scales;
  const Hdf5Id list(H5Aopen(dataset, "DIMENSION_LIST", H5P_DEFAULT), H5Aclose);
  const Hdf5Id space(H5Aget_space(list), H5Sclose);
  const Hdf5Id type(H5Tvlen_create(H5T_STD_REF_OBJ), H5Tclose);
  if (H5Sget_simple_extent_npoints(space) != static_cast<hssize_t>(rank)) return scales;
  std::vector<hvl_t> references(rank);
  if (H5Aread(list, type, references.data()) < 0) return scales;
  for (size_t i = 0; i < rank; ++i)
    if (references[i].len > 0)
      scales[i] =
          Hdf5Id(H5Rdereference2(dataset, H5P_DEFAULT, H5R_OBJECT, references[i].p), H5Oclose);
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, references.data());
  return scales;
}

bool is_degrees_north(const std::string& units) {
  return listed(units,
                {"degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen"});
}

bool is_degrees_east(const std::string& units) {
  return listed(units,
                {"degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee"});
}

AxisRole role_by_attributes(const Hdf5Id& scale, const std::string& units) {
  const std::string axis = lower(text_attribute(scale, "axis"));
  const std::string standard = lower(text_attribute(scale, "standard_name"));
  if (axis == "t" || standard == "time" || units.find(" since ") != std::string::npos)
    return AxisRole::time;
  if (axis == "y" || is_degrees_north(units) ||
      listed(standard, {"latitude", "grid_latitude", "projection_y_coordinate"}))
    return AxisRole::row;
  if (axis == "x" || is_degrees_east(units) ||
      listed(standard, {"longitude", "grid_longitude", "projection_x_coordinate"}))
    return AxisRole::column;
  if (axis == "z" || has_attribute(scale, "positive") || has_attribute(scale, "formula_terms") ||
      listed(standard, {"air_pressure", "height", "depth", "altitude", "model_level_number"}))
    return AxisRole::level;
  return AxisRole::other;
}

AxisRole role_by_name(const std::string& name) {
  if (listed(name, {"time", "t", "valid_time", "time_counter", "ocean_time", "xtime", "date", "day",
                    "days", "month", "year", "frame", "frames", "sample", "record"}))
    return AxisRole::time;
  if (listed(name, {"lat", "latitude", "y", "yc", "rlat", "grid_latitude", "nj", "row", "rows",
                    "south_north"}))
    return AxisRole::row;
  if (listed(name, {"lon", "longitude", "x", "xc", "rlon", "grid_longitude", "ni", "column",
                    "columns", "west_east"}))
    return AxisRole::column;
  if (listed(name, {"lev", "level", "levels", "plev", "pressure", "pressure_level", "isobaric",
                    "isobaricinhpa", "depth", "deptht", "height", "altitude", "z", "hybrid",
                    "model_level", "channel", "channels"}))
    return AxisRole::level;
  return AxisRole::other;
}

bool is_geographic(const Hdf5Id& scale, const Axis& axis, const std::string& units) {
  const std::string standard = lower(text_attribute(scale, "standard_name"));
  const std::string name = lower(axis.name);
  const bool plain = standard.empty() && (units.empty() || units == "degrees");
  if (axis.role == AxisRole::row)
    return standard == "latitude" || is_degrees_north(units) ||
           (plain && listed(name, {"lat", "latitude"}));
  return axis.role == AxisRole::column && (standard == "longitude" || is_degrees_east(units) ||
                                           (plain && listed(name, {"lon", "longitude"})));
}

// netCDF keeps a dimension without coordinates as a scale that says so in its name.
bool holds_coordinates(const Hdf5Id& scale) {
  return !text_attribute(scale, "NAME")
              .starts_with("This is a netCDF dimension but not a netCDF variable");
}

void unpack_numbers(const Hdf5Id& file, const Hdf5Id& dataset, const std::string& name,
                    std::vector<double>& values) {
  const Packing packing = packing_of(dataset, {.file = file, .owner = name});
  if (packing.scaled())
    for (double& value : values) value = value * packing.scale + packing.offset;
}

// What a coordinate variable of one dimension (or none) says.
void take_coordinate(const Hdf5Id& file, const Hdf5Id& variable, Axis& axis) {
  const std::string raw = text_attribute(variable, "units"), units = lower(raw);
  const AxisRole role = role_by_attributes(variable, units);
  if (role != AxisRole::other) axis.role = role;
  axis.degrees = is_geographic(variable, axis, units);
  axis.units = raw;
  axis.calendar = lower(text_attribute(variable, "calendar"));
  const std::vector<int64_t> dims = dims_of(variable);
  if (dims.size() > 1 || (dims.size() == 1 && dims[0] != axis.size) || axis.size > most_coordinates)
    return;
  axis.values = dataset_numbers(variable);
  unpack_numbers(file, variable, axis.name, axis.values);
  if (axis.values.empty()) axis.labels = dataset_texts(variable);
}

// The variables that the attribute `coordinates` names; looked for beside the dataset.
std::vector<Hdf5Id> auxiliary_coordinates(const Hdf5Id& file, const Hdf5Id& dataset) {
  std::array<char, 1024> path = {};
  H5Iget_name(dataset, path.data(), path.size());
  std::string folder(path.data());
  folder.erase(folder.rfind('/') + 1);
  std::istringstream names(text_attribute(dataset, "coordinates"));
  std::vector<Hdf5Id> found;
  for (std::string name; names >> name;) {
    Hdf5Id variable(H5Dopen2(file, (folder + name).c_str(), H5P_DEFAULT), H5Dclose);
    if (variable) found.push_back(std::move(variable));
  }
  return found;
}

// Times and degrees that the dimension's own coordinate lacks, from a variable along it.
void take_auxiliary(const Hdf5Id& file, const Hdf5Id& variable, std::vector<Axis>& axes) {
  if (dims_of(variable).size() != 1) return;
  const std::vector<Hdf5Id> scales = scales_of(variable, 1);
  const std::string along = scales[0] ? name_of(scales[0]) : "";
  for (Axis& axis : axes) {
    if (axis.name.empty() || axis.name != along) continue;
    Axis other{.name = axis.name, .role = axis.role, .size = axis.size};
    take_coordinate(file, variable, other);
    const bool times = other.units.find(" since ") != std::string::npos &&
                       axis.units.find(" since ") == std::string::npos &&
                       text_attribute(variable, "standard_name") != "forecast_reference_time";
    const bool degrees = other.degrees && !axis.degrees;
    if (times || degrees) axis = other;
  }
}

}  // namespace

std::vector<Axis> axes_of(const Hdf5Id& file, const Hdf5Id& dataset) {
  const std::vector<int64_t> dims = dims_of(dataset);
  const std::vector<Hdf5Id> scales = scales_of(dataset, dims.size());
  std::vector<Axis> axes(dims.size());
  bool named = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    axes[i].size = dims[i];
    if (!scales[i]) continue;
    axes[i].name = name_of(scales[i]);
    axes[i].role = role_by_name(lower(axes[i].name));
    named = named || !axes[i].name.empty();
    if (!axes[i].name.empty() && holds_coordinates(scales[i]))
      take_coordinate(file, scales[i], axes[i]);
  }
  if (named)
    for (const Hdf5Id& variable : auxiliary_coordinates(file, dataset))
      take_auxiliary(file, variable, axes);
  return axes;
}

Axis scalar_time_of(const Hdf5Id& file, const Hdf5Id& dataset) {
  for (const Hdf5Id& variable : auxiliary_coordinates(file, dataset)) {
    if (!dims_of(variable).empty()) continue;
    Axis axis{.name = name_of(variable), .size = 1};
    take_coordinate(file, variable, axis);
    if (axis.role == AxisRole::time && !axis.values.empty() &&
        text_attribute(variable, "standard_name") != "forecast_reference_time")
      return axis;
  }
  return {};
}

}  // namespace braid::data
