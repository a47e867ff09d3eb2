// SPDX-License-Identifier: BSD-3-Clause
// What the dimensions of a dataset are called and where their points lie, as netCDF-4 writes it
// (dimension scales) and the CF conventions mean it. Internal.
//
//   const std::vector<Axis> axes = axes_of(file, dataset);    // one per dimension
//   axes[0].role == AxisRole::time;
#pragma once
#include <string>
#include <vector>

#include "data/hdf5.h"

namespace braid::data {

enum class AxisRole { time, level, row, column, other };

struct Axis {
  std::string name = {};  // of the dimension; "": the file does not name it
  AxisRole role = AxisRole::other;
  bool degrees = false;                  // row: degrees north; column: degrees east
  int64_t size = 0;                      // of the dimension
  std::vector<double> values = {};       // coordinates; empty: unknown
  std::vector<std::string> labels = {};  // coordinates that are texts
  std::string units = {}, calendar = {};
};

std::vector<Axis> axes_of(const Hdf5Id& file, const Hdf5Id& dataset);
// The time of a dataset that has no dimension of time, only a time of its own (a scalar
// coordinate); without name if it has none.
Axis scalar_time_of(const Hdf5Id& file, const Hdf5Id& dataset);

}  // namespace braid::data
