// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/error.h"

namespace braid::data {
namespace {

std::string dimensions_text(const std::vector<Axis>& axes) {
  std::vector<std::string> names;
  for (const Axis& axis : axes)
    names.push_back(fmt::format("{} = {}", axis.name.empty() ? "?" : axis.name, axis.size));
  return fmt::format("{}", fmt::join(names, ", "));
}

[[noreturn]] void refuse_shape(const FieldLayout& layout, const LayoutOf& of) {
  std::vector<int64_t> dims;
  for (const Axis& axis : layout.axes) dims.push_back(axis.size);
  throw DataError(
      {.what = fmt::format("{} has the shape [{}]", of.owner, fmt::join(dims, ", ")),
       .why = of.one_channel_a_frame
                  ? "a variable is [time, height, width], one per channel; more dimensions need "
                    "names in the file, as netCDF-4 has them"
                  : "fields are [time, channel, height, width] or [time, height, width]",
       .fix = "name another dataset in data.dataset or data.variables"});
}

[[noreturn]] void refuse_no_map(const FieldLayout& layout, const LayoutOf& of) {
  throw DataError({.what = fmt::format("{} has the dimensions ({}): no map", of.owner,
                                       dimensions_text(layout.axes)),
                   .why = "a field has rows and columns beside its time",
                   .fix = "name another dataset in data.dataset or data.variables"});
}

[[noreturn]] void refuse_no_time(const FieldLayout& layout, const LayoutOf& of) {
  const bool map = layout.axes.size() == 2;
  throw DataError(
      {.what = fmt::format("{} has the dimensions ({}): {}", of.owner, dimensions_text(layout.axes),
                           map ? "a field that has no time" : "none of them is time"),
       .why = map ? "a static field is no sample: frames are fields at different times"
                  : "levels and depths are channels, not frames",
       .fix = map ? "leave it out of data.variables, or repeat it along time: xarray "
                    "ds[name].expand_dims(time=times)"
                  : "name a variable with a time dimension; if one of the dimensions is time, "
                    "give its coordinate units such as \"hours since 1990-01-01\""});
}

[[noreturn]] void refuse_too_many(const FieldLayout& layout, const LayoutOf& of) {
  throw DataError(
      {.what = fmt::format("{} has the dimensions ({})", of.owner, dimensions_text(layout.axes)),
       .why = "beside time, rows and columns one more dimension can be taken, as channels",
       .fix = "write files with one member or level group each: cdo splitlevel, or xarray "
              "ds.isel(...).to_netcdf(file)"});
}

int place_of(const std::vector<Axis>& axes, AxisRole role) {
  const auto found = std::ranges::find(axes, role, &Axis::role);
  return found == axes.end() ? -1 : static_cast<int>(found - axes.begin());
}

// The last dimension that has no meaning yet.
int last_free(const std::vector<Axis>& axes, const std::vector<int>& taken, AxisRole role) {
  for (int i = static_cast<int>(axes.size()) - 1; i >= 0; --i)
    if (std::ranges::count(taken, i) == 0 && axes[static_cast<size_t>(i)].role == role) return i;
  return -1;
}

void place_by_name(FieldLayout& layout, const LayoutOf& of) {
  const std::vector<Axis>& axes = layout.axes;
  layout.time = place_of(axes, AxisRole::time);
  layout.row = place_of(axes, AxisRole::row);
  layout.column = place_of(axes, AxisRole::column);
  if (layout.column < 0)
    layout.column = last_free(axes, {layout.time, layout.row}, AxisRole::other);
  if (layout.row < 0) layout.row = last_free(axes, {layout.time, layout.column}, AxisRole::other);
  if (layout.row < 0 || layout.column < 0) refuse_no_map(layout, of);
  for (int i = 0; i < static_cast<int>(axes.size()); ++i) {
    if (i == layout.time || i == layout.row || i == layout.column) continue;
    const bool single = axes[static_cast<size_t>(i)].size == 1;
    if (single && (layout.level >= 0 || axes[static_cast<size_t>(i)].role != AxisRole::level))
      continue;  // a member or height of its own
    const bool kept = layout.level >= 0 && axes[static_cast<size_t>(layout.level)].size > 1;
    if (kept || axes[static_cast<size_t>(i)].role == AxisRole::time) refuse_too_many(layout, of);
    layout.level = i;
  }
}

void place_by_order(FieldLayout& layout, const LayoutOf& of) {
  const auto rank = static_cast<int>(layout.axes.size());
  if (rank != 3 && (rank != 4 || of.one_channel_a_frame)) refuse_shape(layout, of);
  layout.time = 0;
  layout.level = rank == 4 ? 1 : -1;
  layout.row = rank - 2;
  layout.column = rank - 1;
}

}  // namespace

bool FieldLayout::in_order() const {
  return time < (level < 0 ? row : level) && level < row && row < column;
}

FieldLayout lay_out(const Hdf5Id& file, const Hdf5Id& dataset, const LayoutOf& of) {
  FieldLayout layout;
  layout.axes = axes_of(file, dataset);
  layout.named =
      std::ranges::any_of(layout.axes, [](const Axis& axis) { return !axis.name.empty(); });
  if (!layout.named) {
    place_by_order(layout, of);
    return layout;
  }
  if (layout.axes.size() < 2) refuse_no_map(layout, of);
  layout.time = place_of(layout.axes, AxisRole::time);
  layout.times = layout.time < 0 ? scalar_time_of(file, dataset)
                                 : layout.axes[static_cast<size_t>(layout.time)];
  if (layout.times.name.empty()) refuse_no_time(layout, of);
  place_by_name(layout, of);
  return layout;
}

}  // namespace braid::data
