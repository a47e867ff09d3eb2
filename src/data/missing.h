// SPDX-License-Identifier: BSD-3-Clause
// What becomes of missing values in a sample: data.missing. Internal.
//
//   if (file.read(slab, values, scaling) > 0) missing.settle(file, slab, values, scaling);
#pragma once
#include "data/field_file.h"
#include "data/fields.h"

namespace braid::data {

class MissingRule {
 public:
  // `scaling`: of the data set. Throws ConfigError if the rule needs means and there are none.
  MissingRule(const DataOptions& options, const Scaling& scaling);
  // With `error` throws DataError that names file, frame and variable. `scaling`: what the values
  // are already scaled by, or nothing.
  void settle(const FieldFile& file, const Slab& slab, float* values, const Scaling& scaling) const;

 private:
  Missing rule_;
  const Scaling& scaling_;
};

}  // namespace braid::data
