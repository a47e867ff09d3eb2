// SPDX-License-Identifier: BSD-3-Clause
// What is wrong with the times of files: order, doubles, gaps. Internal.
#pragma once
#include <vector>

#include "braid/data/check.h"
#include "data/field_file.h"

namespace braid::data {

bool has_time_axis(const FieldFile& file);  // with units that are understood or not
// Of the files of a folder, in their order.
std::vector<Finding> time_findings(const std::vector<const FieldFile*>& files);

}  // namespace braid::data
