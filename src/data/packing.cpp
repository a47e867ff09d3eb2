// SPDX-License-Identifier: BSD-3-Clause
#include "data/packing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "braid/core/error.h"

namespace braid::data {
namespace {

using Kind = Packing::Kind;

constexpr float default_float_fill = 9.9692099683868690e+36F;  // NC_FILL_FLOAT
constexpr uint32_t default_fill_bits = std::bit_cast<uint32_t>(default_float_fill);

// NaN, infinities and netCDF's default fill value are at least this large. Integers without an
// early exit, so that compilers vectorise.
bool any_huge(const float* values, int64_t count) {
  uint32_t huge = 0;
  for (int64_t i = 0; i < count; ++i)
    huge |= static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & 0x7fffffffU) >=
                                  default_fill_bits);
  return huge != 0;
}

// Rules in the type of the numbers.
template <class T>
struct StoredRules {
  std::vector<T> missing;
  T least = std::numeric_limits<T>::lowest(), most = std::numeric_limits<T>::max();
  bool ranged = false;

  explicit StoredRules(const Packing& packing) {
    for (const long double number : packing.missing) missing.push_back(static_cast<T>(number));
    if (packing.least) least = static_cast<T>(*packing.least);
    if (packing.most) most = static_cast<T>(*packing.most);
    ranged = packing.least.has_value() || packing.most.has_value();
  }

  void mark(const T* values, int64_t count, uint8_t* gone) const {
    for (const T lost : missing)
      for (int64_t i = 0; i < count; ++i) gone[i] |= static_cast<uint8_t>(values[i] == lost);
    if (!ranged) return;
    for (int64_t i = 0; i < count; ++i)
      gone[i] |= static_cast<uint8_t>(values[i] < least) | static_cast<uint8_t>(values[i] > most);
  }
};

// Integers of fewer than 64 bits whose sign bit means the opposite of what their type says.
void turn_sign(const Packing& packing, int64_t* values, int64_t count) {
  const int shift = 64 - 8 * packing.size;
  for (int64_t i = 0; i < count; ++i) {
    const auto moved = static_cast<uint64_t>(values[i]) << shift;
    values[i] = packing.kind == Kind::natural ? static_cast<int64_t>(moved >> shift)
                                              : static_cast<int64_t>(moved) >> shift;
  }
}

template <class T>
int64_t unpack_as(const Packing& packing, const T* raw, int64_t count, float* out) {
  constexpr int64_t block = 4096;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const StoredRules<T> rules(packing);
  std::array<uint8_t, block> gone = {};
  int64_t missing = 0;
  for (int64_t first = 0; first < count; first += block) {
    const int64_t n = std::min(block, count - first);
    const T* from = raw + first;
    float* to = out + first;
    gone.fill(0);
    rules.mark(from, n, gone.data());
    if (packing.scaled())
      for (int64_t i = 0; i < n; ++i)
        to[i] = static_cast<float>(static_cast<double>(from[i]) * packing.scale + packing.offset);
    else
      for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]);
    for (int64_t i = 0; i < n; ++i) to[i] = gone[i] != 0 ? nan : to[i];
    for (int64_t i = 0; i < n; ++i) missing += static_cast<int64_t>(std::isnan(to[i]));
  }
  return missing;
}

// Only NaN and the default fill value can be missing: one look at the bits tells that none is.
bool needs_one_look(const Packing& packing) {
  return packing.kind == Kind::f4 && !packing.scaled() && !packing.least && !packing.most &&
         std::ranges::all_of(packing.missing, [](long double number) {
           return std::abs(number) >= static_cast<long double>(default_float_fill);
         });
}

// Attributes in the type of the variable, as readers of netCDF compare them; nothing if no number
// of that type equals it.
std::optional<long double> in_stored_type(const Packing& packing, long double number) {
  if (packing.kind == Kind::f4) return static_cast<float>(number);
  if (packing.kind == Kind::f8) return static_cast<double>(number);
  if (!std::isfinite(number) || number != std::floor(number)) return std::nullopt;
  const long double span = std::exp2(static_cast<long double>(8 * packing.size));
  const bool natural = packing.kind == Kind::natural;
  if (natural && packing.stored_signed && number < 0) number += span;
  if (!natural && !packing.stored_signed && number >= span / 2) number -= span;
  const long double least = natural ? 0 : -span / 2, most = natural ? span - 1 : span / 2 - 1;
  return number < least || number > most ? std::nullopt : std::optional(number);
}

std::optional<long double> default_fill(const Packing& packing) {
  if (packing.kind == Kind::f4) return default_float_fill;
  if (packing.kind == Kind::f8) return 9.9692099683868690e+36;
  if (packing.size < 2) return std::nullopt;  // every byte is a number
  const long double span = std::exp2(static_cast<long double>(8 * packing.size));
  const int above = packing.size == 8 ? 2 : 1;  // as netcdf.h has them
  if (packing.stored_signed) return in_stored_type(packing, -span / 2 + above);
  return in_stored_type(packing, span - above);
}

bool netcdf_wrote(const Hdf5Id& file, const Hdf5Id& dataset) {
  return has_attribute(file, "_NCProperties") || has_attribute(dataset, "DIMENSION_LIST") ||
         has_attribute(dataset, "_Netcdf4Dimid");
}

bool fills_new_space(const Hdf5Id& dataset) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose);
  H5D_fill_time_t when = H5D_FILL_TIME_IFSET;
  return H5Pget_fill_time(creation, &when) < 0 || when != H5D_FILL_TIME_NEVER;
}

void take_type(const Hdf5Id& dataset, Packing& packing) {
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
  packing.size = static_cast<int>(H5Tget_size(type));
  if (H5Tget_class(type) == H5T_FLOAT) {
    packing.kind = packing.size > 4 ? Kind::f8 : Kind::f4;
    return;
  }
  packing.stored_signed = H5Tget_sign(type) != H5T_SGN_NONE;
  const std::string natural = text_attribute(dataset, "_Unsigned");
  const bool is_natural =
      natural.empty() ? !packing.stored_signed : natural == "true" || natural == "True";
  packing.kind = is_natural ? Kind::natural : Kind::integer;
}

[[noreturn]] void complain_of_attribute(const char* name, const std::string& owner,
                                        const std::string& problem) {
  throw DataError({.what = fmt::format("attribute {} of {} {}", name, owner, problem),
                   .why = "the values on disk cannot be unpacked without it",
                   .fix = "write the attribute again as the CF conventions define it"});
}

void take_scale(const Hdf5Id& dataset, const std::string& owner, Packing& packing) {
  for (const auto& [name, value] :
       {std::pair{"scale_factor", &packing.scale}, std::pair{"add_offset", &packing.offset}}) {
    const ExactNumbers numbers = number_attribute(dataset, name, owner);
    if (numbers.empty()) continue;
    if (numbers.size() != 1)
      complain_of_attribute(name, owner, fmt::format("holds {} numbers, not one", numbers.size()));
    *value = static_cast<double>(numbers[0]);
    if (!std::isfinite(*value)) complain_of_attribute(name, owner, "is not a finite number");
  }
}

void take_missing(const Hdf5Id& dataset, const PackingOf& of, Packing& packing) {
  const ExactNumbers fill = number_attribute(dataset, "_FillValue", of.owner);
  ExactNumbers all = number_attribute(dataset, "missing_value", of.owner);
  all.insert(all.end(), fill.begin(), fill.end());
  for (const long double number : all)
    if (const auto stored = in_stored_type(packing, number))
      if (!std::isnan(*stored)) packing.missing.push_back(*stored);
  if (!fill.empty() || !netcdf_wrote(of.file, dataset)) return;
  const bool floats = packing.kind == Kind::f4 || packing.kind == Kind::f8;
  if (!floats && !fills_new_space(dataset)) return;
  if (const auto stored = default_fill(packing)) packing.missing.push_back(*stored);
}

// A limit between two integers is moved to the one inside.
long double limit_in(const Packing& packing, long double number, bool upper) {
  if (packing.kind == Kind::f4) return static_cast<float>(number);
  if (packing.kind == Kind::f8) return static_cast<double>(number);
  const long double whole = upper ? std::floor(number) : std::ceil(number);
  const long double span = std::exp2(static_cast<long double>(8 * packing.size));
  const bool natural = packing.kind == Kind::natural;
  const bool turned = natural && packing.stored_signed && whole < 0;
  return std::clamp<long double>(turned ? whole + span : whole, natural ? 0 : -span / 2,
                                 natural ? span - 1 : span / 2 - 1);
}

void take_range(const Hdf5Id& dataset, const std::string& owner, Packing& packing) {
  const ExactNumbers range = number_attribute(dataset, "valid_range", owner);
  if (!range.empty() && range.size() != 2)
    complain_of_attribute("valid_range", owner,
                          fmt::format("holds {} numbers, not two", range.size()));
  const ExactNumbers least = number_attribute(dataset, "valid_min", owner),
                     most = number_attribute(dataset, "valid_max", owner);
  const auto take = [&](const ExactNumbers& numbers, size_t at, bool upper) {
    return numbers.size() <= at || std::isnan(numbers[at])
               ? std::nullopt
               : std::optional(limit_in(packing, numbers[at], upper));
  };
  packing.least = take(range.empty() ? least : range, 0, false);
  packing.most = take(range.empty() ? most : range, range.empty() ? 0 : 1, true);
}

}  // namespace

hid_t Packing::memory_type() const {
  if (kind == Kind::f4) return H5T_NATIVE_FLOAT;
  if (kind == Kind::f8) return H5T_NATIVE_DOUBLE;
  return stored_signed ? H5T_NATIVE_INT64 : H5T_NATIVE_UINT64;
}

int64_t Packing::unpack(const void* raw, int64_t count, float* out) const {
  if (kind == Kind::f4) {
    const auto* values = static_cast<const float*>(raw);
    if (!needs_one_look(*this) || values != out || any_huge(values, count))
      return unpack_as(*this, values, count, out);
    return 0;
  }
  if (kind == Kind::f8) return unpack_as(*this, static_cast<const double*>(raw), count, out);
  if ((kind == Kind::natural) == stored_signed && size < 8) {
    std::vector<int64_t> turned(static_cast<const int64_t*>(raw),
                                static_cast<const int64_t*>(raw) + count);
    turn_sign(*this, turned.data(), count);
    return unpack_as(*this, turned.data(), count, out);
  }
  if (kind == Kind::natural) return unpack_as(*this, static_cast<const uint64_t*>(raw), count, out);
  return unpack_as(*this, static_cast<const int64_t*>(raw), count, out);
}

Packing packing_of(const Hdf5Id& dataset, const PackingOf& of) {
  Packing packing;
  take_type(dataset, packing);
  take_scale(dataset, of.owner, packing);
  take_missing(dataset, of, packing);
  take_range(dataset, of.owner, packing);
  return packing;
}

}  // namespace braid::data
