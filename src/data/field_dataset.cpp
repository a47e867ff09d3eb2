// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "braid/core/error.h"
#include "braid/data/field_names.h"

namespace braid::data {

static_assert(std::endian::native == std::endian::little, "files are read as little-endian");

namespace {

namespace fs = std::filesystem;

std::string missing_dataset_fix(const std::string& name, const std::vector<std::string>& names) {
  if (names.empty()) return "write the data into the file, or take it out of the folder";
  const std::string near = nearest(name, names);
  if (!near.empty())
    return fmt::format("set data.dataset to {}, or name it in data.variables", near);
  return fmt::format("set data.dataset or data.variables to some of: {}", some_of(names));
}

// A link may lead to a dataset of another file, whose offsets mean nothing in this one.
bool lies_in(const Hdf5Id& file, const Hdf5Id& dataset) {
  H5O_info_t here, there;
  return H5Oget_info2(file, &here, H5O_INFO_BASIC) >= 0 &&
         H5Oget_info2(dataset, &there, H5O_INFO_BASIC) >= 0 && here.fileno == there.fileno;
}

std::string file_of(const Hdf5Id& object) {
  std::array<char, 4096> name = {};
  return H5Fget_name(object, name.data(), name.size()) > 0 ? name.data() : "";
}

// The place of plain bytes that need no library: contiguous, in this file, f4 or f8 little-endian.
int64_t direct_offset(const Hdf5Id& file, const Hdf5Id& dataset, const Hdf5Id& creation) {
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
  if (H5Pget_layout(creation) != H5D_CONTIGUOUS || H5Pget_external_count(creation) != 0) return -1;
  if (H5Tequal(type, H5T_IEEE_F32LE) <= 0 && H5Tequal(type, H5T_IEEE_F64LE) <= 0) return -1;
  if (!lies_in(file, dataset)) return -1;
  const haddr_t address = H5Dget_offset(dataset);
  return address == HADDR_UNDEF ? -1 : static_cast<int64_t>(address);
}

int64_t level_at(const FieldDataset& dataset, double wanted, const std::string& owner) {
  const Axis& axis = dataset.layout.axes[static_cast<size_t>(dataset.layout.level)];
  for (size_t i = 0; i < axis.values.size(); ++i)
    if (std::abs(axis.values[i] - wanted) <= 1e-6 * std::max(1.0, std::abs(wanted)))
      return static_cast<int64_t>(i);
  std::vector<std::string> there;
  for (const double value : axis.values) there.push_back(fmt::format("{}", value));
  throw DataError(
      {.what = fmt::format("data.levels asks for {}, which {} does not have", wanted, owner),
       .why = there.empty() ? fmt::format("its dimension {} has no coordinates", axis.name)
                            : fmt::format("{} has the values {}{}", axis.name, some_of(there),
                                          axis.units.empty() ? "" : " " + axis.units),
       .fix = there.empty() ? "leave data.levels empty to take all levels"
                            : "choose among these values in data.levels"});
}

void choose_levels(FieldDataset& dataset, const FieldNames& names, const std::string& owner) {
  constexpr int64_t most = 1 << 20;
  if (dataset.layout.levels() > most)
    throw DataError(
        {.what = fmt::format("{} has {} channels", owner, dataset.layout.levels()),
         .why = fmt::format("at most {} are read; a damaged file may say any shape", most),
         .fix = "fetch the file again, or name another dataset"});
  const bool choose = !names.levels.empty() && dataset.layout.named && dataset.layout.level >= 0 &&
                      dataset.layout.levels() > 1;
  if (choose)
    for (const double wanted : names.levels)
      dataset.levels.push_back(level_at(dataset, wanted, owner));
  else
    for (int64_t i = 0; i < dataset.layout.levels(); ++i) dataset.levels.push_back(i);
}

std::string level_name(const Axis& axis, int64_t level) {
  const auto at = static_cast<size_t>(level);
  if (at < axis.labels.size()) return axis.labels[at];
  return at < axis.values.size() ? fmt::format("{}", axis.values[at]) : std::to_string(level);
}

void check_not_empty(const FieldDataset& dataset, const std::string& owner) {
  std::vector<int64_t> dims;
  for (const Axis& axis : dataset.layout.axes) dims.push_back(axis.size);
  if (std::ranges::count(dims, 0) == 0) return;
  throw DataError(
      {.what = fmt::format("{} is empty: its shape is [{}]", owner, fmt::join(dims, ", ")),
       .why = "it holds no value to read",
       .fix = "write the data, or take the file out of the folder"});
}

}  // namespace

void check_number_type(const Hdf5Id& dataset, const std::string& owner) {
  const Hdf5Id type(H5Dget_type(dataset), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type);
  if (kind == H5T_FLOAT || kind == H5T_INTEGER) return;
  throw DataError({.what = fmt::format("{} does not hold numbers", owner),
                   .why = "fields are floats or integers on disk",
                   .fix = "name another dataset in data.dataset or data.variables"});
}

// External files may only be those of the data's own folder: a file from elsewhere must not be able
// to name any file of this machine.
void check_external(const Hdf5Id& dataset, const std::string& owner) {
  const Hdf5Id creation(H5Dget_create_plist(dataset), H5Pclose);
  std::error_code ignored;
  const fs::path folder = fs::weakly_canonical(file_of(dataset), ignored).parent_path();
  for (int i = 0; i < H5Pget_external_count(creation); ++i) {
    std::array<char, 4096> name = {};
    off_t offset = 0;
    hsize_t size = 0;
    H5Pget_external(creation, static_cast<unsigned>(i), name.size() - 1, name.data(), &offset,
                    &size);
    const fs::path file(name.data());
    const fs::path inside = fs::weakly_canonical(folder / file, ignored).lexically_relative(folder);
    if (!inside.empty() && *inside.begin() != "..") continue;
    throw DataError(
        {.what = fmt::format("{} keeps its values in {}, outside of the folder of the file", owner,
                             file.string()),
         .why = "a data file could otherwise make braid read any file of this machine",
         .fix = "move the values beside the file, or repack it: h5repack in.h5 out.h5"});
  }
}

// External files lie beside their file. The library refuses to open a dataset twice with different
// places for them, so only datasets that have some are opened so.
Hdf5Id find_dataset(const Hdf5Id& file, const std::string& name) {
  Hdf5Id plain(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (plain) {
    const Hdf5Id creation(H5Dget_create_plist(plain), H5Pclose);
    if (H5Pget_external_count(creation) == 0) return plain;
    plain.reset();
  }
  const Hdf5Id access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
  H5Pset_efile_prefix(access, "${ORIGIN}");
  return {H5Dopen2(file, name.c_str(), access), H5Dclose};
}

Hdf5Id open_dataset(const Hdf5Id& file, const std::string& name, const std::string& path) {
  Hdf5Id id = find_dataset(file, name);
  if (id) return id;
  const std::vector<std::string> names = hdf5_datasets(file);
  throw DataError({.what = fmt::format("{} has no dataset {}", path, name),
                   .why = names.empty() ? "the file holds no dataset at all"
                                        : fmt::format("the file holds: {}", some_of(names)),
                   .fix = missing_dataset_fix(name, names)});
}

FieldDataset describe_dataset(const Hdf5Id& file, const fs::path& path, const std::string& name,
                              const FieldNames& names) {
  const Hdf5Id id = open_dataset(file, name, path.string());
  const std::string owner = fmt::format("dataset {} of {}", name, path.string());
  check_number_type(id, owner);
  FieldDataset dataset;
  dataset.name = name;
  dataset.path = path;
  dataset.layout = lay_out(file, id, {owner, /*one_channel_a_frame=*/!names.variables.empty()});
  check_not_empty(dataset, owner);
  dataset.packing = packing_of(id, {.file = file, .owner = owner});
  dataset.units = text_attribute(id, "units");
  const Hdf5Id creation(H5Dget_create_plist(id), H5Pclose);
  check_external(id, owner);
  dataset.written = H5Pget_layout(creation) == H5D_VIRTUAL || H5Dget_storage_size(id) > 0;
  if (dataset.layout.in_order()) dataset.offset = direct_offset(file, id, creation);
  choose_levels(dataset, names, owner);
  return dataset;
}

std::vector<std::string> FieldDataset::channel_names(bool alone) const {
  if (!layout.named && alone && (name == "fields" || layout.level >= 0)) return {};
  if (layout.level < 0 || layout.levels() == 1) return {name};
  const Axis& axis = layout.axes[static_cast<size_t>(layout.level)];
  const bool whole = alone && !axis.labels.empty();  // a dimension that holds the names
  std::vector<std::string> channels;
  for (const int64_t level : levels)
    channels.push_back(whole ? level_name(axis, level)
                             : fmt::format("{}_{}", name, level_name(axis, level)));
  return channels;
}

}  // namespace braid::data
