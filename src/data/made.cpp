// SPDX-License-Identifier: BSD-3-Clause
#include "data/made.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/regular_file.h"
#include "braid/core/units.h"
#include "core/json.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;
using MadeJson = nlohmann::json;

constexpr const char* made_name = "made.json";
constexpr const char* made_by = "braid data make";
constexpr size_t most_named = 3;  // files in a message

// The file itself while it is being written.
std::string without_part(const std::string& name) {
  constexpr std::string_view part = ".part";
  return name.ends_with(part) ? name.substr(0, name.size() - part.size()) : name;
}

int64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? -1 : static_cast<int64_t>(bytes);
}

// The folder, or the nearest one above it that exists.
fs::path existing_above(fs::path dir) {
  std::error_code ignored;
  dir = fs::absolute(dir, ignored);
  while (!fs::exists(dir, ignored) && dir.has_relative_path()) dir = dir.parent_path();
  return dir;
}

// Calls `see` with each file below the folder, by its relative name, until it says false.
template <class See>
void each_file(const fs::path& dir, const See& see) {
  std::error_code error;
  fs::recursive_directory_iterator items(dir, error);
  for (; !error && items != fs::recursive_directory_iterator(); items.increment(error)) {
    std::error_code unknown;
    if (items->is_directory(unknown) && !items->is_symlink(unknown)) continue;
    if (!see(items->path().lexically_relative(dir).generic_string())) return;
  }
  if (error && error.value() != ENOENT) throw_storage("list", dir, error.value());
}

}  // namespace

Made::Made(fs::path dir, ToMake plan) : dir_(std::move(dir)), plan_(std::move(plan)) {
  if (dir_.empty()) dir_ = ".";
  dir_ = dir_.lexically_normal();
  read_earlier();
  if (!plan_.force) refuse_foreign();
  refuse_full_disk();
  make_dirs(dir_);
  Sizes sizes = earlier_;
  for (const std::string& name : plan_.files) sizes[name] = -1;
  write(sizes);  // first: whatever ends this, the files are known as made
}

void Made::read_earlier() {
  const fs::path file = dir_ / made_name;
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return;
  try {
    const MadeJson content = parse_json(read_regular(file));
    if (content.at("by") != made_by) return;
    for (const auto& [name, size] : content.at("files").items())
      earlier_[name] = size.is_null() ? -1 : integer_of(size, name);
  } catch (const MadeJson::exception&) {
    earlier_.clear();  // a file of somebody else under this name: it counts as foreign
  } catch (const JsonFault&) {
    earlier_.clear();
  }
}

bool Made::is_ours(const std::string& name) const {
  if (name == made_name) return !earlier_.empty();
  const auto known = earlier_.find(without_part(name));
  if (known == earlier_.end()) return false;
  std::error_code unknown;
  if (fs::is_symlink(dir_ / name, unknown)) return false;
  return known->second < 0 || known->first != name || size_of(dir_ / name) == known->second;
}

std::vector<std::string> Made::foreign_files() const {
  std::vector<std::string> foreign;
  const auto look_at = [&](const std::string& name) {
    if (!is_ours(name)) foreign.push_back(name);
    return foreign.size() <= most_named;
  };
  std::error_code unknown;
  if (plan_.whole_folder) {
    each_file(dir_, look_at);
    return foreign;
  }
  for (const std::string& name : {std::string(made_name), plan_.files.front()})
    if (fs::exists(fs::symlink_status(dir_ / name, unknown))) look_at(name);
  return foreign;
}

void Made::refuse_foreign() {
  std::vector<std::string> foreign = foreign_files();
  if (foreign.empty()) return;
  const bool more = foreign.size() > most_named;
  if (more) foreign.resize(most_named);
  throw ConfigError(
      {.what = fmt::format("{} holds files that braid data make did not write: {}{}", dir_.string(),
                           fmt::join(foreign, ", "), more ? ", ..." : ""),
       .why = plan_.whole_folder ? "made-up data would overwrite them or mix with them"
                                 : "it would be overwritten",
       .fix = plan_.whole_folder ? "name a folder that is empty or does not exist; --force writes "
                                   "there all the same"
                                 : "name another file; --force overwrites it"});
}

void Made::refuse_full_disk() const {
  std::error_code error;
  const fs::space_info disk = fs::space(existing_above(dir_), error);
  if (error) return;  // the write will say it
  auto room = static_cast<int64_t>(std::min<uintmax_t>(disk.available, int64_t{1} << 62));
  for (const std::string& name : plan_.files)
    if (earlier_.contains(name)) room += std::max<int64_t>(size_of(dir_ / name), 0);
  if (plan_.bytes <= room) return;
  throw StorageError(
      {.what = fmt::format("{} needs {}, and {} are free on that disk", dir_.string(),
                           to_text(Bytes{plan_.bytes}), to_text(Bytes{room})),
       .why = plan_.what,
       .fix = fmt::format("make less data ({}), or name a folder on another disk", plan_.smaller)});
}

void Made::write(const Sizes& sizes) const {
  MadeJson content = {{"by", made_by}, {"files", MadeJson::object()}};
  for (const auto& [name, size] : sizes)
    content["files"][name] = size < 0 ? MadeJson(nullptr) : MadeJson(size);
  write_atomic(dir_ / made_name,
               content.dump(1, ' ', false, MadeJson::error_handler_t::replace) + "\n");
}

void Made::finish() {
  Sizes sizes;
  std::error_code ignored;
  for (const auto& [name, size] : earlier_) {
    const bool again = std::ranges::count(plan_.files, name) > 0;
    if (again || !is_ours(name)) continue;
    if (plan_.whole_folder)
      fs::remove(dir_ / name, ignored);
    else if (fs::exists(dir_ / name, ignored))
      sizes[name] = size;
  }
  for (const std::string& name : plan_.files) sizes[name] = size_of(dir_ / name);
  write(sizes);
}

std::string or_make(const std::string& fix, const std::string& kind, const fs::path& where) {
  std::error_code unknown;
  const bool there = fs::exists(where, unknown) || unknown;
  const bool empty = there && fs::is_directory(where, unknown) && fs::is_empty(where, unknown);
  if (there && !empty) return fix;
  return fmt::format("{}, or make some: braid data make {} {}", fix, kind, where.string());
}

int64_t float_bytes(const std::vector<int64_t>& sizes) {
  int64_t bytes = sizeof(float);
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::numeric_limits<int64_t>::max();
  return bytes;
}

}  // namespace braid::data
