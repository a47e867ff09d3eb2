// SPDX-License-Identifier: BSD-3-Clause
// Which dimension of a dataset is time, which the channels, rows and columns. Internal.
//
//   const FieldLayout layout = lay_out(file, dataset, {.owner = "t2m of 1990.nc"});
//   layout.height();
#pragma once
#include <string>
#include <vector>

#include "data/axes.h"

namespace braid::data {

struct FieldLayout {
  int time = -1, level = -1, row = 0, column = 1;  // places among the dimensions; -1: none
  std::vector<Axis> axes = {};                     // of all dimensions
  Axis times = {};                                 // of the dimension, or a scalar coordinate
  bool named = false;                              // the file names its dimensions

  int64_t frames() const { return time < 0 ? 1 : axes[static_cast<size_t>(time)].size; }
  int64_t levels() const { return level < 0 ? 1 : axes[static_cast<size_t>(level)].size; }
  const Axis& rows() const { return axes[static_cast<size_t>(row)]; }
  const Axis& columns() const { return axes[static_cast<size_t>(column)]; }
  bool in_order() const;  // time before levels before rows before columns
};

struct LayoutOf {
  std::string owner;                 // for messages
  bool one_channel_a_frame = false;  // without names, a dataset of four dimensions is refused
};
// With names each dimension is taken for what it is, without names by its place. Throws DataError.
FieldLayout lay_out(const Hdf5Id& file, const Hdf5Id& dataset, const LayoutOf& of);

}  // namespace braid::data
