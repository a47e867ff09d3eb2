// SPDX-License-Identifier: BSD-3-Clause
// How the numbers on disk become values, as the CF conventions and netCDF say it: _FillValue,
// missing_value, valid_range, valid_min, valid_max, _Unsigned, scale_factor, add_offset, and
// netCDF's default fill values. Internal.
//
//   const Packing packing = packing_of(dataset, {.file = file, .owner = "t2m of 1990.nc"});
//   H5Dread(dataset, packing.memory_type(), ..., raw);
//   missing += packing.unpack(raw, count, values);   // NaN where a value is missing
#pragma once
#include <optional>
#include <string>

#include "data/hdf5_attributes.h"

namespace braid::data {

struct Packing {
  // In what type stored numbers are read and compared: each holds all numbers of its kind exactly.
  enum class Kind { f4, f8, integer, natural };
  Kind kind = Kind::f4;
  bool stored_signed = true;  // of integers on disk; `kind` says otherwise where _Unsigned does
  int size = 4;               // bytes on disk
  double scale = 1, offset = 0;
  ExactNumbers missing = {};  // in the stored type
  std::optional<long double> least = {}, most = {};

  bool scaled() const { return scale != 1 || offset != 0; }
  hid_t memory_type() const;
  int64_t memory_bytes() const { return kind == Kind::f4 ? 4 : 8; }
  // Returns the number of missing values. `out` may be `raw` where memory_bytes() is 4.
  int64_t unpack(const void* raw, int64_t count, float* out) const;
};

struct PackingOf {
  const Hdf5Id& file;
  const std::string& owner;  // for messages
};
// Throws DataError if an attribute cannot be understood.
Packing packing_of(const Hdf5Id& dataset, const PackingOf& of);

}  // namespace braid::data
