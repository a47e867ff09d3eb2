// SPDX-License-Identifier: BSD-3-Clause
// Attributes of HDF5 objects as text or as numbers, and short lists of names for messages. Internal
// to the data module.
//
//   const std::string units = text_attribute(dataset, "units");              // "" if absent
//   const auto scale = number_attribute(dataset, "scale_factor", "t2m of 1990.nc");   // exact
#pragma once
#include <string>
#include <vector>

#include "data/hdf5.h"

namespace braid::data {

// long double holds all integers of 64 bits and all doubles exactly.
using ExactNumbers = std::vector<long double>;

bool has_attribute(const Hdf5Id& object, const char* name);
// "" if there is no such attribute or it holds no text; of several texts the first.
std::string text_attribute(const Hdf5Id& object, const char* name);
// Empty if there is no such attribute. Throws DataError, naming `owner`, if it holds no numbers.
ExactNumbers number_attribute(const Hdf5Id& object, const char* name, const std::string& owner);

std::vector<int64_t> dims_of(const Hdf5Id& dataset);
// All values of a dataset of numbers or of texts; empty if it holds something else.
std::vector<double> dataset_numbers(const Hdf5Id& dataset);
std::vector<std::string> dataset_texts(const Hdf5Id& dataset);

std::string some_of(const std::vector<std::string>& names);  // a, b, c and 19,990 more

}  // namespace braid::data
