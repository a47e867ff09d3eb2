// SPDX-License-Identifier: BSD-3-Clause
#include "report/page_profile.h"

#include <initializer_list>

#include "braid/core/error.h"
#include "braid/core/regular_file.h"
#include "core/json.h"
#include "report/memory_points.h"

namespace braid::report {
namespace {

using ProfileJson = nlohmann::json;

constexpr size_t parts_on_page = 500;

// The file, or null if there is none.
ProfileJson file_json(const std::filesystem::path& file) {
  if (!std::filesystem::exists(file)) return nullptr;
  return parse_json(read_regular(file));
}

std::vector<MemoryPoint> points_of(const ProfileJson& json) {
  const ProfileJson &times = json.at(0), &sizes = json.at(1);
  std::vector<MemoryPoint> points(times.size());
  for (size_t i = 0; i < points.size(); ++i) {
    points[i].nanoseconds = static_cast<int64_t>(times.at(i).get<double>() * 1e3);
    for (size_t c = 0; c < memory_categories; ++c)
      points[i].bytes[c] = sizes.at(i).at(c + 1).get<int64_t>();
  }
  return points;
}

PageJson numbers_of(const ProfileJson& row, std::initializer_list<const char*> keys) {
  PageJson json = PageJson::object();
  for (const char* key : keys) json[key] = rounded(row.value(key, 0.0));
  return json;
}

PageJson rank_rows(const ProfileJson& summary) {
  PageJson rows = PageJson::array();
  for (const ProfileJson& rank : summary.value("ranks", ProfileJson::array()))
    rows.push_back(numbers_of(
        rank, {"rank", "seconds", "forward", "backward", "optimizer", "data", "communication",
               "exposed_communication", "bubble", "host_gap", "other"}));
  for (PageJson& row : rows) row["rank"] = static_cast<int64_t>(row["rank"].get<double>());
  return rows;
}

// The rows of a table in summary.json that took the most, with their names.
PageJson named_rows(const ProfileJson& table, std::initializer_list<const char*> keys) {
  constexpr size_t most_rows_kept = 40;
  PageJson rows = PageJson::array();
  for (const ProfileJson& row : table) {
    if (rows.size() == most_rows_kept) break;
    PageJson json = numbers_of(row, keys);
    json["name"] = row.value("name", std::string());
    rows.push_back(std::move(json));
  }
  return rows;
}

PageJson of_files(const ProfileJson& summary, const ProfileJson& memory) {
  if (summary.is_null() && memory.is_null()) return nullptr;
  const ProfileJson known = summary.is_null() ? ProfileJson::object() : summary;
  const auto table = [&](const char* name) { return known.value(name, ProfileJson::array()); };
  PageJson json = numbers_of(known, {"peak_tflops", "bandwidth_gbs"});
  json["steps"] = table("steps").size();
  json["ranks"] = rank_rows(known);
  json["operators"] = named_rows(
      table("operators"), {"calls", "seconds", "share", "flops", "bytes", "tflops", "intensity"});
  json["modules"] = named_rows(table("modules"), {"forward", "backward"});
  json["memory"] = nullptr;
  if (!memory.is_null() && !memory.at(0).empty())
    json["memory"] = points_json(thinned(points_of(memory), parts_on_page));
  return json;
}

DataError broken_profile(const std::filesystem::path& dir, const std::string& fault) {
  return DataError(
      {.what = fmt::format("the profile in {} cannot be read: {}", dir.string(), fault),
       .why = "summary.json and rank0_memory.json are written by braid profile",
       .fix = "profile the run again, or take that folder away"});
}

}  // namespace

PageJson profile_json(const std::filesystem::path& dir) {
  try {
    return of_files(file_json(dir / "summary.json"), file_json(dir / "rank0_memory.json"));
  } catch (const ProfileJson::exception& error) {
    throw broken_profile(dir, json_fault(error));
  } catch (const JsonFault& error) {
    throw broken_profile(dir, error.what());
  }
}

}  // namespace braid::report
