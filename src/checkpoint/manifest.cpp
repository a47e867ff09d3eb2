// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "braid/core/fs.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* format_name = "braid-checkpoint";
constexpr int64_t format_version = 1;

// Keys are sorted and numbers written in one way only, so equal content has equal text.
std::string self_hash(json content) {
  content.erase("xxh3");
  return xxh3_of(content.dump());
}

Manifest from_json(const json& content) {
  Manifest m;
  m.step = content.at("step").get<int64_t>();
  m.world = content.at("world").get<int64_t>();
  m.weights = content.at("weights").get<std::string>();
  for (const json& shard : content.at("shards"))
    m.shards.push_back({shard.at("rank").get<int64_t>(), shard.at("file").get<std::string>()});
  for (const auto& [name, file] : content.at("files").items())
    m.files[name] = {file.at("bytes").get<int64_t>(), file.at("xxh3").get<std::string>()};
  for (const auto& [name, metric] : content.at("metrics").items())  // null: was not finite
    m.metrics[name] =
        metric.is_null() ? std::numeric_limits<double>::quiet_NaN() : metric.get<double>();
  m.values = content.at("values").get<std::map<std::string, std::string>>();
  return m;
}

void check_format(const json& content, const fs::path& dir) {
  if (content.value("format", "") != format_name)
    throw broken_checkpoint(dir, fmt::format("{} is not that of a checkpoint", manifest_name));
  const auto version = content.value("version", int64_t{0});
  if (version != format_version)
    throw broken_checkpoint(
        dir, fmt::format("it has format version {}, this braid reads {}", version, format_version));
  if (content.value("xxh3", "") != self_hash(content))
    throw broken_checkpoint(
        dir, fmt::format("{} differs from what was saved (its hash is wrong)", manifest_name));
}

}  // namespace

StorageError broken_checkpoint(const fs::path& dir, const std::string& why) {
  return StorageError({.what = fmt::format("checkpoint {} is broken", dir.string()),
                       .why = why,
                       .fix = "use an older checkpoint of the run"});
}

std::string to_json(const Manifest& m) {
  json content = {{"format", format_name}, {"version", format_version}, {"step", m.step},
                  {"world", m.world},      {"weights", m.weights},      {"metrics", m.metrics},
                  {"values", m.values}};
  content["shards"] = json::array();
  for (const Shard& shard : m.shards)
    content["shards"].push_back({{"rank", shard.rank}, {"file", shard.file}});
  content["files"] = json::object();
  for (const auto& [name, record] : m.files)
    content["files"][name] = {{"bytes", record.bytes}, {"xxh3", record.xxh3}};
  // Through text once: numbers that are not finite become null, and the hash must see what a reader
  // sees.
  content = json::parse(content.dump());
  content["xxh3"] = self_hash(content);
  return content.dump(1) + "\n";
}

Manifest read_manifest(const fs::path& dir) {
  const fs::path file = dir / manifest_name;
  std::error_code error;
  if (!fs::exists(file, error))
    throw broken_checkpoint(dir, fmt::format("it has no {}", manifest_name));
  const json content = json::parse(read_text(file), nullptr, /*allow_exceptions=*/false);
  if (!content.is_object())
    throw broken_checkpoint(
        dir, fmt::format("{} is not JSON: it is truncated or overwritten", manifest_name));
  try {
    check_format(content, dir);
    return from_json(content);
  } catch (const json::exception& wrong) {
    throw broken_checkpoint(dir, fmt::format("{}: {}", manifest_name, wrong.what()));
  }
}

void check_sizes(const Manifest& manifest, const fs::path& dir) {
  for (const auto& [name, record] : manifest.files) {
    std::error_code error;
    const auto size = fs::file_size(dir / name, error);
    if (error)
      throw broken_checkpoint(dir, fmt::format("{} is missing: {}", name, error.message()));
    if (static_cast<int64_t>(size) != record.bytes)
      throw broken_checkpoint(
          dir, fmt::format("{} is {} ({} of {} bytes)", name,
                           static_cast<int64_t>(size) < record.bytes ? "truncated" : "too long",
                           size, record.bytes));
  }
}

}  // namespace braid::checkpoint
