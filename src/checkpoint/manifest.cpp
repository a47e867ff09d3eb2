// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/manifest.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>

#include "braid/core/regular_file.h"
#include "checkpoint/manifest_check.h"
#include "checkpoint/tensor_file.h"
#include "core/json.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* format_name = "braid-checkpoint";
constexpr int64_t format_version = 3;  // the newest

// Keys are sorted and numbers written in one way only, so equal content has equal text.
std::string self_hash(json content) {
  content.erase("xxh3");
  return xxh3_of(content.dump());
}

std::vector<uint64_t> hashes_from(const json& words) {
  std::vector<uint64_t> hashes;
  for (const json& word : words) {
    const auto digits = word.get<std::string>();
    uint64_t hash = 0;
    const char* const end = digits.data() + digits.size();
    if (digits.size() != 16 || std::from_chars(digits.data(), end, hash, 16).ptr != end)
      throw JsonFault(fmt::format("\"{}\" is not a hash", digits));
    hashes.push_back(hash);
  }
  return hashes;
}

// [[dimension, [[begin, end], ...]], ...]
json cuts_json(const std::vector<Cut>& cuts) {
  json rows = json::array();
  for (const Cut& cut : cuts) {
    json ranges = json::array();
    for (const Range& range : cut.ranges) ranges.push_back({range.begin, range.end});
    rows.push_back(json::array({cut.dim, std::move(ranges)}));
  }
  return rows;
}

std::vector<Cut> cuts_from(const json& rows) {
  std::vector<Cut> cuts;
  for (const json& row : rows) {
    Cut& cut = cuts.emplace_back();
    cut.dim = integer_of(row.at(0), "the dimension of a cut");
    for (const json& range : row.at(1))
      cut.ranges.push_back({integer_of(range.at(0), "the begin of a cut"),
                            integer_of(range.at(1), "the end of a cut")});
  }
  return cuts;
}

bool has_cuts(const Manifest& manifest) {
  for (const Shard& shard : manifest.shards)
    for (const StoredPiece& piece : shard.pieces)
      if (!piece.cuts.empty()) return true;
  return false;
}

// [name, dtype, shape of the whole, first, count, begin, [hashes]], and the cuts if there are some
json piece_json(const StoredPiece& piece) {
  json hashes = json::array();
  for (const uint64_t hash : piece.xxh3) hashes.push_back(hex_of(hash));
  json row = json::array({piece.name, dtype_word(piece.dtype), piece.whole, piece.first,
                          piece.count, piece.begin, hashes});
  if (!piece.cuts.empty()) row.push_back(cuts_json(piece.cuts));
  return row;
}

StoredPiece piece_from(const json& row) {
  StoredPiece piece;
  piece.name = row.at(0).get<std::string>();
  const auto word = row.at(1).get<std::string>();
  if (!dtype_called(word, piece.dtype))
    throw JsonFault(fmt::format("{} has the unknown dtype {}", piece.name, word));
  for (const json& size : row.at(2)) piece.whole.push_back(integer_of(size, "a size"));
  piece.first = integer_of(row.at(3), "the first element of a piece");
  piece.count = integer_of(row.at(4), "the number of elements of a piece");
  piece.begin = integer_of(row.at(5), "the first byte of a piece");
  piece.xxh3 = hashes_from(row.at(6));
  if (row.size() > 7) piece.cuts = cuts_from(row.at(7));
  return piece;
}

json shard_json(const Shard& shard) {
  json content = {
      {"file", shard.file}, {"bytes", shard.record.bytes}, {"head_xxh3", shard.record.xxh3}};
  content["pieces"] = json::array();
  for (const StoredPiece& piece : shard.pieces) content["pieces"].push_back(piece_json(piece));
  return content;
}

Shard shard_from(const json& content) {
  Shard shard;
  shard.file = content.at("file").get<std::string>();
  shard.record = {integer_of(content.at("bytes"), "bytes"),
                  content.at("head_xxh3").get<std::string>()};
  for (const json& row : content.at("pieces")) shard.pieces.push_back(piece_from(row));
  return shard;
}

// Version 1 has one file of weights and one of the rest, without their pieces: a reader takes those
// from the heads of the files.
std::vector<Shard> first_shards(const json& content) {
  std::vector<Shard> shards = {{content.at("weights").get<std::string>(), {}, {}}};
  for (const json& shard : content.at("shards"))
    shards.push_back({shard.at("file").get<std::string>(), {}, {}});
  return shards;
}

Manifest from_json(const json& content) {
  Manifest m;
  m.version = integer_of(content.at("version"), "version");
  m.step = integer_of(content.at("step"), "step");
  m.world = integer_of(content.at("world"), "world");
  m.token = content.value("token", "");
  if (m.version == 1)
    m.shards = first_shards(content);
  else
    for (const json& shard : content.at("shards")) m.shards.push_back(shard_from(shard));
  for (const auto& [name, file] : content.at("files").items())
    m.files[name] = {integer_of(file.at("bytes"), "bytes"), file.at("xxh3").get<std::string>()};
  for (const auto& [name, metric] : content.at("metrics").items())  // null: was not finite
    m.metrics[name] =
        metric.is_null() ? std::numeric_limits<double>::quiet_NaN() : metric.get<double>();
  m.values = content.at("values").get<std::map<std::string, std::string>>();
  return m;
}

void check_format(const json& content, const fs::path& dir) {
  if (!content.is_object()) throw JsonFault("it is not a JSON object");
  if (content.value("format", "") != format_name)
    throw broken_checkpoint(dir, fmt::format("{} is not that of a checkpoint", manifest_name));
  const int64_t version = integer_of(content.at("version"), "version");
  if (version < 1 || version > format_version)
    throw broken_checkpoint(dir, fmt::format("it has format version {}, this braid reads 1 to {}",
                                             version, format_version));
  if (content.value("xxh3", "") != self_hash(content))
    throw broken_checkpoint(
        dir, fmt::format("{} differs from what was saved (its hash is wrong)", manifest_name));
}

// One line for each value and each piece: readable, and small with many pieces.
std::string in_lines(const json& content) {
  std::string text = "{";
  const char* comma = "\n";
  for (const auto& [key, value] : content.items()) {
    text += fmt::format("{} {}: ", comma, json(key).dump());
    comma = ",\n";
    if (key != "shards") {
      text += value.dump();
      continue;
    }
    text += "[";
    const char* shard_comma = "";
    for (json shard : value) {
      const json pieces = std::move(shard["pieces"]);
      shard.erase("pieces");
      std::string line = shard.dump();
      line.pop_back();
      text += fmt::format("{}\n  {},\"pieces\":[", shard_comma, line);
      shard_comma = ",";
      for (size_t i = 0; i < pieces.size(); ++i)
        text += fmt::format("{}\n   {}", i == 0 ? "" : ",", pieces[i].dump());
      text += "]}";
    }
    text += "]";
  }
  return text + "\n}\n";
}

void check_size(const fs::path& dir, const std::string& name, int64_t bytes) {
  std::error_code error;
  const auto size = fs::file_size(dir / name, error);
  if (error) throw broken_checkpoint(dir, fmt::format("{} is missing: {}", name, error.message()));
  if (static_cast<int64_t>(size) == bytes) return;
  throw broken_checkpoint(
      dir, fmt::format("{} is {} ({} of {} bytes)", name,
                       static_cast<int64_t>(size) < bytes ? "truncated" : "too long", size, bytes));
}

}  // namespace

StorageError broken_checkpoint(const fs::path& dir, const std::string& why) {
  return StorageError({.what = fmt::format("checkpoint {} is broken", dir.string()),
                       .why = why,
                       .fix = "use an older checkpoint of the run"});
}

std::string to_json(const Manifest& m) {
  json content = {{"format", format_name}, {"version", has_cuts(m) ? 3 : 2},
                  {"step", m.step},        {"world", m.world},
                  {"token", m.token},      {"metrics", m.metrics},
                  {"values", m.values}};
  content["shards"] = json::array();
  for (const Shard& shard : m.shards) content["shards"].push_back(shard_json(shard));
  content["files"] = json::object();
  for (const auto& [name, record] : m.files)
    content["files"][name] = {{"bytes", record.bytes}, {"xxh3", record.xxh3}};
  // Numbers that are not finite are written as null, and the hash must see what a reader sees.
  content["metrics"] = parse_json(content["metrics"].dump());
  content["xxh3"] = self_hash(content);
  return in_lines(content);
}

Manifest read_manifest(const fs::path& dir) {
  const fs::path file = dir / manifest_name;
  std::error_code error;
  if (!fs::exists(file, error) && !error)
    throw broken_checkpoint(dir, fmt::format("it has no {}", manifest_name));
  const auto broken = [&](const std::exception& wrong) {
    return broken_checkpoint(dir, fmt::format("{}: {}", manifest_name, json_fault(wrong)));
  };
  try {
    const json content = parse_json(read_regular(file));
    check_format(content, dir);
    Manifest manifest = from_json(content);
    check_manifest(manifest);
    return manifest;
  } catch (const json::exception& wrong) {
    throw broken(wrong);
  } catch (const JsonFault& wrong) {
    throw broken(wrong);
  }
}

std::string to_json(const Shard& shard) { return shard_json(shard).dump(); }

Shard read_shard_record(const fs::path& file) {
  const auto broken = [&](const std::exception& wrong) {
    return broken_checkpoint(file.parent_path(),
                             fmt::format("{}: {}", file.filename().string(), json_fault(wrong)));
  };
  try {
    return shard_from(parse_json(read_regular(file)));
  } catch (const json::exception& wrong) {
    throw broken(wrong);
  } catch (const JsonFault& wrong) {
    throw broken(wrong);
  }
}

void check_sizes(const Manifest& manifest, const fs::path& dir) {
  for (const auto& [name, record] : manifest.files) check_size(dir, name, record.bytes);
  if (manifest.version == 1) return;  // all files are in that list
  for (const Shard& shard : manifest.shards) check_size(dir, shard.file, shard.record.bytes);
}

}  // namespace braid::checkpoint
