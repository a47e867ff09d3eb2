// SPDX-License-Identifier: BSD-3-Clause
#include "data/hdf5_attributes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "braid/core/error.h"
#include "braid/core/units.h"

namespace braid::data {
namespace {

// Attributes and datasets are read by the same code.
struct ReadPart {
  const Hdf5Id& id;
  const Hdf5Id& type;
  const Hdf5Id& space;
  bool attribute = true;

  size_t count() const {
    return static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space), 0));
  }
  bool read(hid_t memory, void* out) const {
    if (attribute) return H5Aread(id, memory, out) >= 0;
    return H5Dread(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0;
  }
};

std::string trimmed(const char* text, size_t length) {
  std::string all(text, ::strnlen(text, length));
  while (!all.empty() && all.back() == ' ') all.pop_back();
  return all;
}

std::vector<std::string> variable_texts(const ReadPart& part) {
  std::vector<char*> pointers(part.count(), nullptr);
  std::vector<std::string> texts;
  const Hdf5Id memory(H5Tcopy(part.type), H5Tclose);
  auto* const into = static_cast<void*>(pointers.data());
  if (!part.read(memory, into)) return {};
  for (const char* text : pointers)
    texts.push_back(text == nullptr ? "" : trimmed(text, std::strlen(text)));
  H5Dvlen_reclaim(memory, part.space, H5P_DEFAULT, into);
  return texts;
}

std::vector<std::string> texts_in(const ReadPart& part) {
  if (H5Tget_class(part.type) != H5T_STRING || part.count() == 0) return {};
  if (H5Tis_variable_str(part.type) > 0) return variable_texts(part);
  const size_t size = H5Tget_size(part.type);
  std::vector<char> bytes(part.count() * size);
  if (!part.read(part.type, bytes.data())) return {};
  std::vector<std::string> texts;
  for (size_t i = 0; i < part.count(); ++i) texts.push_back(trimmed(&bytes[i * size], size));
  return texts;
}

template <class T>
ExactNumbers numbers_as(const ReadPart& part, hid_t memory) {
  std::vector<T> values(part.count());
  if (!values.empty() && !part.read(memory, values.data())) return {};
  return {values.begin(), values.end()};
}

ExactNumbers numbers_in(const ReadPart& part) {
  if (H5Tget_class(part.type) == H5T_FLOAT) return numbers_as<double>(part, H5T_NATIVE_DOUBLE);
  if (H5Tget_sign(part.type) == H5T_SGN_NONE) return numbers_as<uint64_t>(part, H5T_NATIVE_UINT64);
  return numbers_as<int64_t>(part, H5T_NATIVE_INT64);
}

bool holds_numbers(const Hdf5Id& type) {
  const H5T_class_t kind = H5Tget_class(type);
  return kind == H5T_FLOAT || kind == H5T_INTEGER;
}

}  // namespace

bool has_attribute(const Hdf5Id& object, const char* name) { return H5Aexists(object, name) > 0; }

std::string text_attribute(const Hdf5Id& object, const char* name) {
  if (!has_attribute(object, name)) return "";
  const Hdf5Id id(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Id type(H5Aget_type(id), H5Tclose), space(H5Aget_space(id), H5Sclose);
  const std::vector<std::string> texts = texts_in({id, type, space});
  return texts.empty() ? "" : texts[0];
}

ExactNumbers number_attribute(const Hdf5Id& object, const char* name, const std::string& owner) {
  if (!has_attribute(object, name)) return {};
  const Hdf5Id id(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
  const Hdf5Id type(H5Aget_type(id), H5Tclose), space(H5Aget_space(id), H5Sclose);
  if (holds_numbers(type)) return numbers_in({id, type, space});
  throw DataError(
      {.what = fmt::format("attribute {} of {} is not a number: \"{}\"", name, owner,
                           text_attribute(object, name)),
       .why = "the values on disk are unpacked and compared with it",
       .fix = fmt::format("write the attribute as a number, e.g. with ncatted -a {},VARIABLE,o,d,"
                          "VALUE FILE",
                          name)});
}

std::vector<int64_t> dims_of(const Hdf5Id& dataset) {
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space);
  std::vector<hsize_t> dims(static_cast<size_t>(std::max(rank, 0)));
  if (rank > 0) H5Sget_simple_extent_dims(space, dims.data(), nullptr);
  return {dims.begin(), dims.end()};
}

std::vector<double> dataset_numbers(const Hdf5Id& dataset) {
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  if (!holds_numbers(type)) return {};
  const ExactNumbers numbers = numbers_in({dataset, type, space, /*attribute=*/false});
  return {numbers.begin(), numbers.end()};
}

std::vector<std::string> dataset_texts(const Hdf5Id& dataset) {
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose), space(H5Dget_space(dataset), H5Sclose);
  return texts_in({dataset, type, space, /*attribute=*/false});
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 12;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), most));
  std::string text = fmt::format("{}", fmt::join(names.begin(), end, ", "));
  if (names.size() <= most) return text;
  return fmt::format("{} and {} more", text,
                     with_commas(static_cast<int64_t>(names.size() - most)));
}

}  // namespace braid::data
